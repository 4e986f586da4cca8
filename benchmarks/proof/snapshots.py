"""What snapshots of the report cost while the program runs."""

import itertools
import sys
import tempfile
import threading
import time
from bisect import bisect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import click

from proof import child
from proof.figures import Cost, cost_of

STEPS_S, BLOCK_S = 600.0, 60.0
BETWEEN = (0.25, 0.5, 0.75)  # of the way from a snapshot to the next
GRAPHS, COMPILATIONS = 10_000, 100_000
CALLED = 100  # of the graphs, between two snapshots


def snapshots(pairs: int, scale: float) -> Iterator[Cost]:
    """Of the largest report, and in ten minutes of training."""
    yield from largest(pairs)
    yield from in_steps(scale)


def largest(pairs: int) -> list[Cost]:
    """The time of the thread that takes them, with as much in the report as it ever holds.

    The first one finds everything new, and the others a hundred graphs that were called.
    """
    session = held(GRAPHS, COMPILATIONS)
    values = []
    with click.progressbar(range(pairs + 1), label="snapshots", file=sys.stderr) as bar:
        for number in bar:
            for graph in session._graphs[:CALLED]:
                next(graph.calls.numbers)
            values.append(on_a_thread(session._live._save))
            if number == 0:
                first = values.pop()
    what = f"a snapshot, {GRAPHS:,} graphs, {COMPILATIONS:,} compilations"
    return [
        cost_of(f"{what}, all new", [first], "CPU s", None),
        cost_of(f"{what}, {CALLED} called", values, "CPU s", 0.2),
    ]


def in_steps(scale: float) -> list[Cost]:
    """Ten minutes of GPT-2 steps: those during which one is taken, beside those between two."""
    folder = tempfile.mkdtemp(prefix="snapshots-")
    ratios, share = child.call(with_and_without, STEPS_S * scale, INSTRUMENTED_DIR=folder)
    what = f"{STEPS_S * scale:.0f} s of GPT-2 steps: snapshots"
    return [
        cost_of(what, ratios, "x", 1.001),
        cost_of(f"{what}, CPU time of their thread", [share], "% of the run", 0.1),
    ]


def with_and_without(seconds: float) -> tuple[list[float], float]:
    """The ratio of each minute; and of the run, what their thread took, in percent."""
    import workloads

    from instrumented_backend import backend

    (step,) = workloads.gpt2("cpu", "instrumented")
    snapshots = backend._session._live.snapshots
    take = snapshots._take
    taken: list[Taken] = []

    def timed() -> bool:
        start_s, cpu_s = time.perf_counter(), time.thread_time()
        done = take()
        taken.append(Taken(start_s, time.perf_counter(), time.thread_time() - cpu_s))
        return done

    for _ in range(20):
        step()
    time.sleep(2.0)  # what the compilations asked for
    snapshots._take = timed
    begun_s = time.perf_counter()
    ends_s = [begun_s]
    with click.progressbar(length=round(seconds), label="steps", file=sys.stderr) as bar:
        while ends_s[-1] - begun_s < seconds:
            step()
            ends_s.append(time.perf_counter())
            bar.update(int(ends_s[-1] - begun_s) - bar.pos)
    run_s = ends_s[-1] - begun_s
    # Without the last, as the steps to compare it with may be over.
    pairs = list(pairs_of(taken[:-1], ends_s))
    if not pairs:
        raise click.ClickException(f"{run_s:.0f} s: too short to compare steps")
    blocks = max(1, min(round(run_s / BLOCK_S), len(pairs)))
    edges = [len(pairs) * block // blocks for block in range(blocks + 1)]
    ratios = [ratio_of(pairs[first:end]) for first, end in itertools.pairwise(edges)]
    return ratios, 100 * sum(one.cpu_s for one in taken) / run_s


@dataclass
class Taken:
    """One snapshot, on `time.perf_counter`'s clock, and its thread's CPU time."""

    start_s: float
    end_s: float
    cpu_s: float


@dataclass
class Pair:
    """The steps that a snapshot ran beside, and as many of those until the next one."""

    beside_s: float
    apart_s: float
    until_next_s: float


def pairs_of(taken: Sequence[Taken], ends_s: Sequence[float]) -> Iterator[Pair]:
    """``ends_s`` has the start of the first step and the end of each.

    A snapshot's steps are those that it ran beside, and one more. What they are compared with is
    near, so a machine that grows slower or faster counts for nothing.
    """
    for one, following in itertools.pairwise(taken):
        until_next_s = following.start_s - one.start_s
        count = bisect(ends_s, one.end_s) + 1 - (bisect(ends_s, one.start_s) - 1)

        def steps_s(at_s: float, count: int = count) -> float:
            first = bisect(ends_s, at_s) - 1
            return ends_s[first + count] - ends_s[first]

        between_s = [one.start_s + part * until_next_s for part in BETWEEN]
        if between_s[-1] + steps_s(between_s[-1]) < following.start_s:
            yield Pair(steps_s(one.start_s), fmean(map(steps_s, between_s)), until_next_s)


def ratio_of(pairs: Sequence[Pair]) -> float:
    """How much longer the steps took, from a snapshot to the next, for the snapshots."""
    extra_s = sum(pair.beside_s - pair.apart_s for pair in pairs)
    return 1 + extra_s / sum(pair.until_next_s for pair in pairs)


def on_a_thread(action: Callable[[], object]) -> float:
    """CPU seconds."""
    taken: list[float] = []

    def run() -> None:
        start_s = time.thread_time()
        action()
        taken.append(time.thread_time() - start_s)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return taken[0]


def held(graphs: int, compilations: int) -> Any:
    """A session with so many, as if a program had made them."""
    from instrumented_backend.observe.code.generated import GeneratedCode
    from instrumented_backend.observe.graphs.graph import ObservedGraph
    from instrumented_backend.observe.session import Session
    from instrumented_backend.records import CompileRecord
    from instrumented_backend.views.files import CurrentFiles
    from proof.parts import _Compiled, _recorded

    folder = Path(tempfile.mkdtemp(prefix="snapshots-"))
    session = Session(lambda report: None, saver=CurrentFiles(folder, None))
    source = _recorded()["plain/pointwise.graph1.py"]
    phases = {"dynamo_s": 0.5, "aot_autograd_s": 0.25, "codegen_s": 0.125}
    kept = _Compiled(source_code=source)
    for number in range(graphs):
        graph = ObservedGraph(session._calls, session.ops, None)
        record = graph.record
        record.graph, record.compile_id = number, f"{number}/0"
        record.function, record.file, record.line = "forward", f"/home/me/{number}.py", 12
        record.ops, record.compile_s = 7, dict(phases)
        graph.inductor_counts = {("inductor", "fxgraph_cache_miss"): 1, ("inductor", "x"): 2}
        graph.aot_counts = {("aot_autograd", "total"): 1, ("aot_autograd", "ok"): 1}
        code = GeneratedCode(kept, f"/cache/{number}.py", "forward")
        code.parse()
        graph.code.append(code)
        next(graph.calls.numbers)
        session._graphs.append(graph)
    log = session.compile_log
    for number in itertools.islice(itertools.cycle(range(graphs)), compilations):
        place = "forward", f"/home/me/{number}.py", 12
        record = CompileRecord(f"{number}/0", "forward", *place, "compiled", [number], phases, 0.9)
        log._keep(record)
        log.totals.add(record)
    return session
