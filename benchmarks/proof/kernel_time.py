"""The time of C++ kernels in the run itself, against Inductor's own marks in torch.profiler."""

import re
import statistics
from collections import Counter, defaultdict

from proof import child, models
from proof.figures import Figure

BLOCKS, STEPS = 9, 5
_NAME = re.compile(r"(?:graph_\d+_)?(cpp_\w+)")


def kernel_time(name: str) -> list[Figure]:
    """``INSTRUMENTED_DEVICE_TIME=on`` against ``cpp.enable_kernel_profile``, taking turns.

    Limit: 10 %. Ours has the call from Python in it (0.3 µs and more), Inductor's the kernel alone.
    """
    rows = child.call(measure, name, INSTRUMENTED_DEVICE_TIME="on", INSTRUMENTED_OPS="off")
    return [Figure(**row) for row in rows]


def measure(name: str) -> list[Figure]:
    """In a process with ``INSTRUMENTED_DEVICE_TIME=on``."""
    import torch
    from torch._inductor import config

    import instrumented_backend

    of_ours, of_theirs = models.training(name, "cpu"), models.training(name, "cpu")
    ours = torch.compile(of_ours.model, backend="instrumented")
    of_ours.steps(ours, 2)
    theirs = torch.compile(of_theirs.model, backend="inductor")
    with config.patch({"cpp.enable_kernel_profile": True}):
        of_theirs.steps(theirs, 2)
    times: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for _ in range(BLOCKS):
        instrumented_backend.reset()
        of_ours.steps(ours, STEPS)
        mine: Counter[str] = Counter()
        my_calls = 0
        for kernel in instrumented_backend.report().kernels:
            if kernel.language == "cpp" and kernel.device_calls is not None:
                my_calls += kernel.device_calls
                mine[kernel.kernel_name] += kernel.device_time_total_us or 0
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
            of_theirs.steps(theirs, STEPS)
        marks = [
            (found[1], event.duration_ns() / 1e3)
            for event in profiler.profiler.kineto_results.events()
            if (found := _NAME.fullmatch(event.name()))
        ]
        true: Counter[str] = Counter()
        for kernel_name, time_us in marks:
            true[kernel_name] += time_us
        for kernel_name in {*mine, *true}:
            times[kernel_name].append((mine[kernel_name] / STEPS, true[kernel_name] / STEPS))
        times[""].append((mine.total() / STEPS, true.total() / STEPS))
    rows = [Figure(name, "calls of C++ kernels", "warm", my_calls / STEPS, len(marks) / STEPS, 0)]
    medians = {
        kernel: tuple(map(statistics.median, zip(*pairs, strict=True)))
        for kernel, pairs in times.items()
    }
    all_kernels = medians.pop("")
    longest = max(medians, key=lambda kernel: medians[kernel][1])
    rows.append(Figure(name, "time of C++ kernels, us a step", "warm", *all_kernels, 10))
    rows.append(Figure(name, f"time of {longest}, us a step"[:60], "warm", *medians[longest], 10))
    return rows
