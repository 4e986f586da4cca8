"""What snapshots of the report cost while the program runs."""

import itertools
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import click

from proof import child
from proof.figures import Cost, cost_of

STEPS_S, BLOCK_S, TURN_STEPS = 600.0, 60.0, 10
FEWEST_BLOCKS = 5
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
    """Ten minutes of GPT-2 steps with snapshots, and as many without, in turns of ten steps.

    The time without is none of the run's to the thread that takes them.
    """
    folder = tempfile.mkdtemp(prefix="snapshots-")
    ratios, share = child.call(with_and_without, STEPS_S * scale, INSTRUMENTED_DIR=folder)
    what = f"{STEPS_S * scale:.0f} s of GPT-2 steps: snapshots"
    return [
        cost_of(what, ratios, "x", 1.001),
        cost_of(f"{what}, CPU time of their thread", [share], "% of the run", 0.1),
    ]


def with_and_without(seconds: float) -> tuple[list[float], float]:
    """The ratio of each minute, or of each fifth of a shorter run; and of the run, what their
    thread took, in percent."""
    import workloads

    from instrumented_backend import backend

    (step,) = workloads.gpt2("cpu", "instrumented")
    live = backend._session._live
    snapshots = live.snapshots
    clock = _Clock()
    snapshots._clock = live._listings._clock = live._estimates._clock = clock
    spent_s = 0.0
    take = snapshots._take

    def timed() -> bool:
        nonlocal spent_s
        start_s = time.thread_time()
        done = take()
        spent_s += time.thread_time() - start_s
        return done

    for _ in range(20):
        step()
    time.sleep(2.0)  # what the compilations asked for
    snapshots._take = timed
    start_s = clock()
    ratios = []
    wanted_s = min(BLOCK_S, seconds / FEWEST_BLOCKS)
    with click.progressbar(length=round(seconds / wanted_s), label="steps", file=sys.stderr) as bar:
        while clock() - start_s < seconds:
            block_s = [0.0, 0.0]
            while block_s[0] < wanted_s:
                for off in (False, True):
                    with clock.stopped() if off else nullcontext():
                        begun_s = time.perf_counter()
                        for _ in range(TURN_STEPS):
                            step()
                        block_s[off] += time.perf_counter() - begun_s
            ratios.append(block_s[0] / block_s[1])
            bar.update(1)
    return ratios, 100 * spent_s / (clock() - start_s)


class _Clock:
    """Monotonic, and stands still where it is stopped."""

    def __init__(self) -> None:
        self._lost_s = 0.0
        self._stopped_at: float | None = None

    def __call__(self) -> float:
        now_s = time.monotonic() if self._stopped_at is None else self._stopped_at
        return now_s - self._lost_s

    @contextmanager
    def stopped(self) -> Iterator[None]:
        self._stopped_at = time.monotonic()
        yield
        self._lost_s += time.monotonic() - self._stopped_at
        self._stopped_at = None


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
    source = next(text for name, text in _recorded().items() if ".kernel" in name)
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
