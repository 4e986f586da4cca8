"""What the kernels of one trace took, by name, and how much of it compiled regions launched."""

from dataclasses import dataclass, field

import numpy as np

from instrumented_backend.traces.intervals import union
from instrumented_backend.traces.launches import find_launches, in_regions
from instrumented_backend.traces.trace_file import REGION_MARKS, Trace


@dataclass
class KernelTotal:
    """Of one name on one GPU: ``captured_*`` were launched inside this backend's regions."""

    count: int = 0
    time_ns: int = 0
    captured_count: int = 0
    captured_ns: int = 0

    def add(self, other: "KernelTotal") -> None:
        self.count += other.count
        self.time_ns += other.time_ns
        self.captured_count += other.captured_count
        self.captured_ns += other.captured_ns


@dataclass
class TraceTotals:
    """Sums over the kernels of one trace or several; copies and memsets are not kernels.

    ``unlinked_ns`` is of kernels whose launch the trace doesn't have; ``busy_ns`` is the union over
    the streams of each GPU, summed over GPUs.
    """

    window_ns: int = 0
    busy_ns: int = 0
    unlinked_ns: int = 0
    kernels: dict[tuple[str, int | str | None], KernelTotal] = field(default_factory=dict)

    def add(self, other: "TraceTotals") -> None:
        self.window_ns += other.window_ns
        self.busy_ns += other.busy_ns
        self.unlinked_ns += other.unlinked_ns
        for key, total in other.kernels.items():
            self.kernels.setdefault(key, KernelTotal()).add(total)


def totals_of(trace: Trace) -> TraceTotals:
    """Kernels that nobody is known to have launched count as not captured."""
    activities, launches = trace.activities, find_launches(trace)
    length = activities.end - activities.start
    captured = np.zeros(len(length), dtype=bool)
    regions = trace.regions.get(REGION_MARKS[0])
    if regions is not None:
        known = launches.known
        captured[known] = in_regions(
            launches.start[known], trace.launch_calls.thread[launches.call[known]], regions
        )
    result = TraceTotals(
        window_ns=trace.end, unlinked_ns=int(length[activities.is_kernel & ~launches.known].sum())
    )
    for number, device in enumerate(trace.devices):
        here = activities.is_kernel & (activities.device == number)
        result.busy_ns += union(activities.start[here], activities.end[here])[0].measure()
        for name in np.unique(activities.name[here]):
            chosen = here & (activities.name == name)
            inside = chosen & captured
            result.kernels[trace.names[name], device.index] = KernelTotal(
                int(chosen.sum()),
                int(length[chosen].sum()),
                int(inside.sum()),
                int(length[inside].sum()),
            )
    return result
