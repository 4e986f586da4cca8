"""A program's truth on a GPU: how long graphs have it, and whether the host is ahead of it.

The run of ours itself has a clock round each graph, on the host (`HostClock`): where the GPU waits
for the host, that is how long a graph has the GPU, too. Where the host is ahead, what counts are
the kernels that graphs launched, by torch.profiler, in a process of its own without our package.
Which of the two it is, a third process tells. On ranks, the run of ours has events round each
graph (`StreamClock`).
"""

import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from proof.device_time import in_region

from truth_programs.clocks import GraphClock
from truth_programs.oracle import inductor
from truth_programs.run import FIRST, Run

PROFILED = 20  # turns of each loop
PART = "part: "
COLLECTIVE = "nccl"  # how the names of its kernels begin: ncclDevKernel_AllReduce_Sum_f32_...


def clocked(name: str, device: str) -> dict[str, Any]:
    """How many steps the host was ahead at the end; its seconds in graphs in their first times.

    A step is a turn of a part that calls graphs: others may be a single op each.
    """
    import torch
    import torch._functorch.config

    from truth_programs.catalogue import ALL

    torch.set_num_threads(1)
    clock = GraphClock()
    run = Run(device, inductor(clock.timed), watch=clock.watch)
    # Out of AOTAutograd's cache a backward comes as it was compiled, with no clock round it.
    with torch._functorch.config.patch(enable_autograd_cache=False):
        ALL[name](run)
    start = time.perf_counter()
    torch.cuda.synchronize()
    ahead_s = time.perf_counter() - start
    turns = sum(max(0, run.parts[part] - FIRST) for part in clock.parts)
    return {
        "first_s": clock.first_s,
        "turns_ahead": ahead_s / (sum(run.part_s[part] for part in clock.parts) / turns),
    }


def profiled(name: str, device: str) -> dict[str, Any]:
    """By part, the share of the time of kernels, copies and memsets that graphs launched.

    And how many seconds that is each time; and "busy": all of that time, to the time of all parts,
    without collectives, in which a GPU waits for the other rank's host.
    """
    import torch
    import torch._functorch.config
    from torch.profiler import ProfilerActivity, profile, record_function

    from truth_programs.catalogue import ALL

    def in_graph(compiled: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            with record_function("TORCHDYNAMO"):
                return compiled(*arguments)

        return call

    @contextmanager
    def watch(part: str, number: int) -> Iterator[None]:
        if number < FIRST:
            yield
        else:
            with record_function(PART + part):
                yield

    torch.set_num_threads(1)
    with (
        torch._functorch.config.patch(enable_autograd_cache=False),
        profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler,
    ):
        ALL[name](Run(device, inductor(in_graph), few=PROFILED, watch=watch))
        torch.cuda.synchronize()
    return _shares(profiler.events(), torch.autograd.DeviceType.CPU)


def _shares(events: Iterable[Any], cpu: Any) -> dict[str, Any]:
    events = [event for event in events if event.device_type == cpu]
    parts = sorted(
        (event.time_range.start, event.time_range.end, event.name.removeprefix(PART))
        for event in events
        if event.name.startswith(PART)
    )
    starts = [start for start, _, _ in parts]
    inside: dict[str, float] = defaultdict(float)
    total: dict[str, float] = defaultdict(float)
    waits_us = 0.0
    for event in events:
        found = bisect_right(starts, event.time_range.start) - 1
        if not event.kernels or found < 0 or event.time_range.start > parts[found][1]:
            continue  # launches nothing, or in a first time
        part, us = parts[found][2], sum(kernel.duration for kernel in event.kernels)
        total[part] += us
        waits_us += sum(k.duration for k in event.kernels if k.name.startswith(COLLECTIVE))
        inside[part] += us * in_region(event)
    parts_us = sum(end - start for start, end, _ in parts)
    times = Counter(part for _, _, part in parts)
    return {
        "each_s": {part: us / times[part] / 1e6 for part, us in inside.items()},
        "shares": {part: inside[part] / us for part, us in total.items() if us},
        # Parts on threads of the program's own are none to the profiler: the clock has to tell.
        "busy": (sum(total.values()) - waits_us) / parts_us if parts_us else 0.0,
    }
