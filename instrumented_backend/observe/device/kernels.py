"""Joins the times that kernels took on a GPU to the kernels' records, by name."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from instrumented_backend.records import DeviceRecord, GraphRecord, KernelRecord, notes


def add_times(
    kernels: Iterable[KernelRecord],
    device: DeviceRecord,
    graphs: Mapping[int | None, GraphRecord],
) -> None:
    """Launches outside regions are somebody else's. A name in several modules has one mean."""
    timed: defaultdict[str, list[float]] = defaultdict(lambda: [0, 0.0])
    for seen in device.kernels:
        timed[seen.kernel][0] += seen.captured_count
        timed[seen.kernel][1] += seen.captured_us
    kernels = [kernel for kernel in kernels if kernel.kernel_name in timed]
    modules = Counter(kernel.kernel_name for kernel in kernels)
    for kernel in kernels:
        count, time_us = timed[kernel.kernel_name]
        if not count:
            continue
        kernel.device_time_us = time_us / count
        kernel.add_note(notes.TIME, f"time: the mean of {count:.0f} launches, in windows")
        if modules[kernel.kernel_name] > 1:
            kernel.add_note(notes.TIME, "time: of all modules with a kernel of this name")
        if kernel.total_bytes is not None and kernel.device_time_us:
            kernel.gb_per_s = kernel.total_bytes / kernel.device_time_us / 1e3
        graph = graphs.get(kernel.graph)
        if graph is not None and kernel.calls is not None:
            backward = kernel.direction == "backward"
            kernel.device_calls = kernel.calls * (graph.backward_calls if backward else graph.calls)
            kernel.device_time_total_us = kernel.device_time_us * kernel.device_calls
