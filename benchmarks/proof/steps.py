"""What training steps cost: ours, and what one would do without us, against plain Inductor."""

import gc
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import click

from proof import child
from proof.figures import Cost, cost_of

# In `auto` ten seconds of them: what the first window costs is spent once.
STEPS = {"auto": {"cpu": 100, "cuda": 1000}, "always": {"cpu": 100, "cuda": 500}}
# Of either, in turn: in `auto` as few as have room for some intervals between windows.
TURN_STEPS = {"auto": {"cpu": 10, "cuda": 20}, "always": {"cpu": 2, "cuda": 20}}
# Limits in each mode: of the whole run, and once the windows have closed.
LIMITS = {"auto": (1.01, 1.005), "always": (1.05, None)}
# A profiler keeps every event: some thousands a step.
COMPARED_STEPS = 20


def _timer(device: str, count: int) -> Callable[[Callable[[], object]], float]:
    """Measures ``count`` steps, in seconds."""
    import torch

    def seconds(step: Callable[[], object]) -> float:
        start = time.perf_counter()
        for _ in range(count):
            step()
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - start

    return seconds


def steps(mode: str, device: str, pairs: int) -> list[Cost]:
    """Training steps with ``INSTRUMENTED_OPS=mode``, as ratios to Inductor's.

    On CPU 100 steps of GPT-2 with 12 layers of 256, on CUDA 1,000 of four transformer blocks, 500
    in ``always`` (`workloads.py`), both taking turns. A whole run starts as a program does, with a
    window, which in ``always`` lasts for all of it; in ``auto`` a second one has its windows
    closed, and each of its turns is a pair.
    """
    rows = child.call(with_us, mode, device, pairs, STEPS[mode][device], INSTRUMENTED_OPS=mode)
    return [Cost(**row) for row in rows]


def with_us(mode: str, device: str, pairs: int, count: int) -> list[Cost]:
    """In a process with ``INSTRUMENTED_OPS=mode``."""
    import workloads

    from instrumented_backend import backend

    make = workloads.net if device == "cuda" else workloads.gpt2
    our_step, their_step = make(device, "instrumented", "inductor")
    for step in (our_step, their_step):
        for _ in range(5):
            step()
    gc.collect()
    gc.freeze()  # a collection of all that was imported is some steps long, and in either's turn
    turn_steps = TURN_STEPS[mode][device]
    seconds = _timer(device, turn_steps)
    number = count // turn_steps
    session = backend._session
    runs, turns = [], []
    with click.progressbar(range(pairs), label=f"{count} steps, {mode}", file=sys.stderr) as bar:
        for _ in bar:
            for step in (our_step, their_step):
                seconds(step)
            session.reset()  # a window is due
            clock = _MetersClock(session.ops)
            aside = clock.stopped if mode == "auto" else _unseen
            whole = list(_in_turns(our_step, their_step, seconds, number, aside))
            ours, theirs = map(sum, zip(*whole, strict=True))
            runs.append(ours / theirs)
            observed = backend.report().ops
            if mode == "auto":
                with clock.stopped():
                    closed = _in_turns(our_step, their_step, seconds, number, nullcontext)
                    turns += [ours / theirs for ours, theirs in closed]
    click.echo(f"{mode}: {observed.status}, {observed.observed_pct} % of a run observed", err=True)
    what = f"{count} steps, {device}, {mode}: "
    whole_limit, closed_limit = LIMITS[mode]
    costs = [cost_of(what + "whole run", runs, "x", whole_limit)]
    if turns:
        costs.append(cost_of(what + "windows closed, in turns", turns, "x", closed_limit))
    return costs


def _in_turns(
    ours: Callable[[], object],
    theirs: Callable[[], object],
    seconds: Callable[[Callable[[], object]], float],
    number: int,
    aside: Callable[[], AbstractContextManager[None]],
) -> Iterator[tuple[float, float]]:
    """The times of a number of turns of each; what a machine does for longer is in both.

    ``aside`` is entered for the others' turns, of which our windows are to have no share.
    """
    for turn in range(number):
        our_s = 0.0 if turn % 2 else seconds(ours)
        with aside():
            their_s = seconds(theirs)
        yield our_s or seconds(ours), their_s


@contextmanager
def _unseen() -> Iterator[None]:
    """A window stays open, and sees nothing that this thread runs, or the engine for it."""
    import torch

    torch.autograd._enable_record_function(False)
    yield
    torch.autograd._enable_record_function(True)


class _MetersClock:
    """The time that the op meter takes for the run's: the others' turns are none of it."""

    def __init__(self, meter: Any) -> None:
        self._meter = meter
        self._stopped_s = 0.0
        meter._schedule.clock = lambda: time.monotonic() - self._stopped_s
        meter._schedule.restart()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """No window is open, and none opens; one that stays until the loop is known comes back."""
        meter, start = self._meter, time.monotonic()
        with meter._lock:
            was_warm_up = meter._is_warm_up
            meter._paused, meter._is_warm_up = True, False
            meter._lib.op_meter_close()
            meter._lib.op_meter_wake()
        yield
        self._stopped_s += time.monotonic() - start
        with meter._lock:
            meter._paused, meter._is_warm_up = False, was_warm_up
            if was_warm_up:
                meter._lib.op_meter_open(False)
            meter._lib.op_meter_wake()


def compared(device: str, pairs: int) -> list[Cost]:
    """The same steps with Inductor and what one would do by hand; each in a process of its own.

    A profiler leaves its process slower on CUDA: plain Inductor's blocks come before it there.
    """
    rows = []
    for tool in _RUNS:
        ratios = child.call(with_tool, tool, device, pairs, COMPARED_STEPS)
        rows.append(cost_of(f"{COMPARED_STEPS} steps, {device}, {tool}", ratios, "x", None))
    return rows


def with_tool(tool: str, device: str, pairs: int, count: int) -> list[float]:
    """Ratios of Inductor with the tool to Inductor without."""
    import workloads

    from proof.naive import record_function

    make = workloads.net if device == "cuda" else workloads.gpt2
    plain, marked = make(device, "inductor", record_function)
    # torch.profiler alone has no need of the marks.
    with_marks = plain if tool == "torch.profiler" else marked
    seconds = _timer(device, count)
    for step in (plain, with_marks):
        for _ in range(5):
            step()
    run = _RUNS[tool]
    before, after = [], []
    order = ["before", "after"] * pairs
    if tool != "record_function":
        order.sort(reverse=True)  # "before" comes before "after"
    with click.progressbar(order, label=tool, file=sys.stderr) as bar:
        for which in bar:
            if which == "before":
                before.append(seconds(plain))
            else:
                start = time.perf_counter()
                run(lambda: seconds(with_marks), device)
                after.append(time.perf_counter() - start)
    return [a / b for a, b in zip(after, before, strict=True)]


def _bare(steps: Callable[[], object], device: str) -> None:
    steps()


def _profiled(steps: Callable[[], object], device: str) -> None:
    """On for the whole run; nothing of it is read."""
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device == "cuda")
    with profile(activities=activities):
        steps()


def _in_tree(steps: Callable[[], object], device: str) -> None:
    """PyTorch's own count of captured ops, and its answer."""
    from torch._dynamo.profiler import Profiler

    profiler = Profiler()
    with profiler.prof:
        steps()
    profiler.results()


_RUNS = {"record_function": _bare, "torch.profiler": _profiled, "torch._dynamo.profiler": _in_tree}
