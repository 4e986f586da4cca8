"""What training steps cost: ours, and what one would do without us, against plain Inductor."""

import sys
import time
from collections.abc import Callable

import click

from proof import child
from proof.figures import Cost, cost_of

STEPS = {"cpu": 100, "cuda": 500}
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
    """Blocks of training steps with ``INSTRUMENTED_OPS=mode``, as ratios to Inductor's.

    On CPU 100 steps of GPT-2 with 12 layers of 256, on CUDA 500 of four transformer blocks
    (`workloads.py`). Each block of ours starts as a run does, with a window; in ``auto`` a second
    one runs with the windows closed.
    """
    rows = child.call(ours, mode, device, pairs, STEPS[device], INSTRUMENTED_OPS=mode)
    return [Cost(**row) for row in rows]


def ours(mode: str, device: str, pairs: int, count: int) -> list[Cost]:
    """In a process with ``INSTRUMENTED_OPS=mode``."""
    import workloads

    from instrumented_backend import backend

    make = workloads.net if device == "cuda" else workloads.gpt2
    step = {name: make(name, device) for name in ("inductor", "instrumented")}
    session = backend._session
    seconds = _timer(device, count)
    for run in step.values():
        for _ in range(5):
            run()

    def close_windows() -> None:
        with session.ops._lock:
            session.ops._close()

    # The first closes the window, too; the next one opens with a call of ours.
    starts = {"whole run": session.reset}
    if mode == "auto":
        starts["windows closed"] = close_windows
    ratios: dict[str, list[float]] = {what: [] for what in starts}
    with click.progressbar(range(pairs), label=f"{count} steps, {mode}", file=sys.stderr) as bar:
        for i in bar:
            for what, begin in starts.items():
                found = {}
                for name in list(step)[:: 1 if i % 2 else -1]:
                    begin()
                    found[name] = seconds(step[name])
                    if name == "instrumented" and what == "whole run":
                        observed = backend.report().ops
                ratios[what].append(found["instrumented"] / found["inductor"])
    click.echo(
        f"{mode}: {observed.status}, {observed.observed_pct} % of a run's calls observed", err=True
    )
    return [
        cost_of(f"{count} steps, {device}, {mode}: {what}", values, "x", limit)
        for (what, values), limit in zip(ratios.items(), LIMITS[mode], strict=False)
    ]


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
    plain = make("inductor", device)
    # torch.profiler alone has no need of the marks.
    with_marks = plain if tool == "torch.profiler" else make(record_function, device)
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
