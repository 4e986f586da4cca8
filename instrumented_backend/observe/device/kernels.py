"""Joins the times that kernels took on a GPU to the kernels' records, by name."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from instrumented_backend.kernels.complete import add_time
from instrumented_backend.kernels.facts import TimeFacts
from instrumented_backend.records import DeviceRecord, GraphRecord, KernelRecord, Note, notes


@dataclass
class _Launches:
    count: int = 0
    time_us: float = 0.0


def add_times(
    kernels: Iterable[KernelRecord],
    device: DeviceRecord,
    graphs: Mapping[int | None, GraphRecord],
) -> None:
    """Launches outside regions are somebody else's. A name in several modules has one mean."""
    timed: defaultdict[str, _Launches] = defaultdict(_Launches)
    for seen in device.kernels:
        timed[seen.kernel].count += seen.captured_count
        timed[seen.kernel].time_us += seen.captured_us
    kernels = [kernel for kernel in kernels if kernel.kernel_name in timed]
    modules = Counter(kernel.kernel_name for kernel in kernels)
    for kernel in kernels:
        launches = timed[kernel.kernel_name]
        if not launches.count:
            continue
        said = [Note(notes.TIME, f"time: the mean of {launches.count} launches, in windows")]
        if modules[kernel.kernel_name] > 1:
            said.append(Note(notes.TIME, "time: of all modules with a kernel of this name"))
        calls = calls_in_run(kernel, graphs.get(kernel.graph))
        add_time(kernel, TimeFacts(launches.time_us / launches.count, calls, said))


def calls_in_run(kernel: KernelRecord, graph: GraphRecord | None) -> int | None:
    """How often the whole run launched it; None: unknown."""
    if graph is None or kernel.calls is None:
        return None
    backward = kernel.direction == "backward"
    return kernel.calls * (graph.backward_calls if backward else graph.calls)
