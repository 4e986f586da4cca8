"""The time of C++ kernels in the run itself, against Inductor's own marks in torch.profiler."""

import re
from collections import Counter, defaultdict

from proof import child, models
from proof.figures import Figure

BLOCKS, STEPS = 15, 3
_NAME = re.compile(r"(?:graph_\d+_)?(cpp_\w+)")


def kernel_time(name: str) -> list[Figure]:
    """``INSTRUMENTED_DEVICE_TIME=on`` against ``cpp.enable_kernel_profile``, taking turns.

    Limit: 10 %. Ours has the call from Python in it (0.3 µs and more), Inductor's the kernel alone.
    """
    rows = child.call(
        measure,
        name,
        INSTRUMENTED_DEVICE_TIME="on",
        INSTRUMENTED_OPS="off",
        OMP_NUM_THREADS="1",  # two threads wait for each other where the machine is busy
    )
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
    calls = Figure(name, "calls of C++ kernels", "warm", my_calls / STEPS, len(marks) / STEPS, 0)
    return [calls, *time_rows(name, times)]


def time_rows(name: str, times: dict[str, list[tuple[float, float]]]) -> list[Figure]:
    """From each block's µs a step, ours and the oracle's, of each kernel: its least, which other
    programs disturb least; summed, and of the kernel that takes longest."""
    least = {
        kernel: (min(mine for mine, _ in blocks), min(true for _, true in blocks))
        for kernel, blocks in times.items()
    }
    total = [sum(part) for part in zip(*least.values(), strict=True)]
    longest = max(least, key=lambda kernel: least[kernel][1])
    return [
        Figure(name, "time of all C++ kernels, us", "warm", total[0], total[1], 10),
        Figure(name, f"time of {longest[:30]}, us", "warm", *least[longest], 15),
    ]
