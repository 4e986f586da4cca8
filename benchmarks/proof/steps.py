"""What training steps cost: ours, and what one would do without us, against plain Inductor."""

import sys
import threading
import time
from collections.abc import Callable

import click

from proof import child
from proof.figures import Cost, cost_of

STEPS = {"cpu": 100, "cuda": 500}
TURNS = 20  # of either, in a run
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
    (`workloads.py`). A whole run starts as a program does, with a window; in ``auto`` a second one
    has its windows closed.
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
    seconds = _timer(device, count // TURNS)
    session = backend._session
    ratios: dict[str, list[float]] = {"whole run": []}
    if mode == "auto":
        ratios["windows closed"] = []
    with click.progressbar(range(pairs), label=f"{count} steps, {mode}", file=sys.stderr) as bar:
        for _ in bar:
            for what, found in ratios.items():
                session.reset()  # a window is due
                if what == "windows closed":
                    with session.ops._lock:
                        session.ops._close()
                found.append(_in_turns(our_step, their_step, seconds))
                if what == "whole run":
                    observed = backend.report().ops
    click.echo(
        f"{mode}: {observed.status}, {observed.observed_pct} % of a run's calls observed", err=True
    )
    return [
        cost_of(f"{count} steps, {device}, {mode}: {what}", values, "x", limit)
        for (what, values), limit in zip(ratios.items(), LIMITS[mode], strict=False)
    ]


def _in_turns(
    ours: Callable[[], object],
    theirs: Callable[[], object],
    seconds: Callable[[Callable[[], object]], float],
) -> float:
    """The ratio of one run's times; what a machine does for longer than a turn is in both.

    A window that is open sees nothing of the others' turns, and costs them nothing; the time that
    they take is none of the run's, of which windows may have their share.
    """
    from instrumented_backend import backend

    meter = backend._session.ops
    our_s = their_s = until_next_s = 0.0
    for _ in range(TURNS):
        earlier = meter._timer
        turn_s = seconds(ours)
        our_s += turn_s
        was_open = meter._is_open
        if was_open:
            with meter._lock:
                meter._close()
        timer = meter._timer
        if is_waiting := timer is not None and timer.is_alive():
            timer.cancel()
            until_next_s = max((until_next_s if timer is earlier else timer.interval) - turn_s, 0)
        their_turn_s = seconds(theirs)
        their_s += their_turn_s
        if meter._started_s is not None:
            meter._started_s += their_turn_s
        if was_open:
            meter._want(1)
        elif is_waiting:
            meter._timer = threading.Timer(until_next_s, timer.function, timer.args)
            meter._timer.daemon = True
            meter._timer.start()
    return our_s / their_s


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
