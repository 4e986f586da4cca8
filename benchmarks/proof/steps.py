"""What training steps cost: ours, and what one would do without us, against plain Inductor."""

import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from proof import child
from proof.figures import Cost, cost_of

STEPS = {"cpu": 100, "cuda": 500}
# Of either, in turn: few, so that most turns are over before the machine does something else.
TURN_STEPS = 2
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

    On CPU 100 steps of GPT-2 with 12 layers of 256, on CUDA 500 of four transformer blocks
    (`workloads.py`), both taking turns. A whole run starts as a program does, with a window; in
    ``auto`` a second one has its windows closed, and each of its turns is a pair.
    """
    rows = child.call(with_us, mode, device, pairs, STEPS[device], INSTRUMENTED_OPS=mode)
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
    seconds = _timer(device, TURN_STEPS)
    session = backend._session
    runs, turns = [], []
    with click.progressbar(range(pairs), label=f"{count} steps, {mode}", file=sys.stderr) as bar:
        for _ in bar:
            for step in (our_step, their_step):
                seconds(step)
            session.reset()  # a window is due
            whole = list(_in_turns(our_step, their_step, seconds, count))
            ours, theirs = map(sum, zip(*whole, strict=True))
            runs.append(ours / theirs)
            observed = backend.report().ops
            if mode == "auto":
                session.reset()
                with session.ops._lock:
                    session.ops._close()
                turns += [a / b for a, b in _in_turns(our_step, their_step, seconds, count)]
    click.echo(
        f"{mode}: {observed.status}, {observed.observed_pct} % of a run's calls observed", err=True
    )
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
    count: int,
) -> Iterator[tuple[float, float]]:
    """Each turn's times in a run of ``count`` steps; what a machine does for longer is in both.

    A window that is open sees nothing of the others' turns, and costs them nothing; the time that
    they take is none of the run's, of which windows may have their share.
    """
    from instrumented_backend import backend

    clock = _MetersClock(backend._session.ops)
    for number in range(count // TURN_STEPS):
        our_s = 0.0 if number % 2 else seconds(ours)
        with clock.stopped():
            their_s = seconds(theirs)
        yield our_s or seconds(ours), their_s


class _MetersClock:
    """The time that the op meter takes for the run's."""

    def __init__(self, meter: Any) -> None:
        self._meter = meter
        self._since_s = time.monotonic()
        self._timer: threading.Timer | None = None  # its own, that waits for `_left_s`
        self._left_s = 0.0

    @contextmanager
    def stopped(self) -> Iterator[None]:
        meter, start = self._meter, time.monotonic()
        if was_open := meter._is_open:
            meter._lib.op_meter_close()  # the meter itself takes it for open
        timer = meter._timer
        if is_waiting := timer is not None and timer.is_alive():
            timer.cancel()
            left_s = self._left_s if timer is self._timer else timer.interval
            self._left_s = max(left_s - (start - self._since_s), 0)
        yield
        self._since_s = time.monotonic()
        if meter._started_s is not None:
            meter._started_s += self._since_s - start
        if was_open:
            meter._lib.op_meter_open()
        elif is_waiting:
            self._timer = threading.Timer(self._left_s, timer.function, timer.args)
            self._timer.daemon = True
            self._timer.start()
            meter._timer = self._timer


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
