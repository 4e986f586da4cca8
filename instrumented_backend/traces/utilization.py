"""How the GPUs of a trace spent their time: busy with what, idle because of what."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from instrumented_backend.traces.intervals import Intervals, overlay, union
from instrumented_backend.traces.kernel_kinds import KINDS, MATRIX_KINDS, kernel_kind
from instrumented_backend.traces.launches import captured_by, find_launches, in_regions
from instrumented_backend.traces.time_range import TimeRange
from instrumented_backend.traces.trace_file import REGION_MARKS, Activities, Trace

_NUMBER = {kind: number for number, kind in enumerate(KINDS)}


@dataclass
class KernelTime:
    """One kernel on one GPU. ``share`` is of the summed time of all its kernels."""

    name: str
    kind: str
    count: int
    total_us: float
    mean_us: float
    share: float | None


@dataclass
class DeviceTime:
    """One GPU in one trace.

    Each time but the last three is a union: how long at least one such activity ran, so that
    streams that overlap never count twice. busy + idle is the window; compute, communication and
    copy may overlap and add up to more than busy. ``matrix`` is the part of compute in GEMM,
    convolution and attention kernels, ``exposed_communication`` the part of communication during
    which nothing computed.

    Idle time until the call began that launched the next activity is the host's (``idle_host``);
    from there on it is the launch's latency (``idle_launch``). If the call had begun before the
    GPU fell idle, the gap lies between kernels (``idle_kernel_gap``). After the last activity the
    host launched nothing more. Without the call, the cause is unknown.

    The captured times are sums over kernels, by where the call was made that launched them: in a
    compiled region, or not, or there is no such call in the trace.
    """

    device: int | str | None
    pid: int | str | None
    name: str | None
    kernel_count: int
    copy_count: int
    busy_us: float
    compute_us: float
    matrix_us: float
    gemm_us: float
    convolution_us: float
    attention_us: float
    communication_us: float
    exposed_communication_us: float
    copy_us: float
    idle_us: float
    idle_host_us: float
    idle_launch_us: float
    idle_kernel_gap_us: float
    idle_unknown_us: float
    captured_us: float | None
    not_captured_us: float | None
    capture_unknown_us: float | None
    kernels: list[KernelTime]

    @property
    def captured_share(self) -> float | None:
        """Of the kernel time of which it is known."""
        if self.captured_us is None or self.not_captured_us is None:
            return None
        return share(self.captured_us, self.captured_us + self.not_captured_us)


@dataclass
class TraceTime:
    """One trace file. The window is from its first event to the end of its last, or the range
    that was asked for; ``start_us`` counts from the first event."""

    file: str
    rank: int | None
    world_size: int | None
    start_us: float
    window_us: float
    captured_by: str | None
    devices: list[DeviceTime]
    notes: list[str]


def share(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def time_of(trace: Trace, within: TimeRange | None = None) -> TraceTime:
    """What each GPU of the trace did; raises TraceError if it has no such range."""
    low, high = (0, trace.end) if within is None else within.within(trace)
    analysis = _Analysis(trace, low, high)
    return TraceTime(
        file=str(trace.path),
        rank=trace.rank,
        world_size=trace.world_size,
        start_us=low / 1e3,
        window_us=(high - low) / 1e3,
        captured_by=analysis.mark,
        devices=[analysis.device_time(number) for number in range(len(trace.devices))],
        notes=trace.notes + analysis.notes(),
    )


def compute_spans(trace: Trace) -> list[tuple[Intervals, Intervals]]:
    """For each GPU, when it computed, and when it did matrix work."""
    kinds = _kinds(trace)
    spans = []
    for number in range(len(trace.devices)):
        of_kind = _spans_by_kind(trace.activities, kinds, trace.activities.device == number)
        matrix = overlay(*(of_kind[kind] for kind in MATRIX_KINDS))
        spans.append((overlay(matrix, of_kind["other"]), matrix))
    return spans


def _kinds(trace: Trace) -> npt.NDArray[np.int64]:
    """Of each activity, as a number in KINDS."""
    of_name = np.array([_NUMBER[kernel_kind(name)] for name in trace.names], dtype=np.int64)
    activities = trace.activities
    if not len(of_name):
        return np.zeros(0, dtype=np.int64)
    return np.where(activities.is_kernel, of_name[activities.name], _NUMBER["copy"])


def _spans_by_kind(
    activities: Activities, kinds: npt.NDArray[np.int64], chosen: npt.NDArray[np.bool_]
) -> dict[str, Intervals]:
    spans = {}
    for kind, number in _NUMBER.items():
        here = chosen & (kinds == number)
        spans[kind], _ = union(activities.start[here], activities.end[here])
    return spans


class _Analysis:
    """One trace between ``low`` and ``high``, in ns."""

    def __init__(self, trace: Trace, low: int, high: int) -> None:
        self.trace = trace
        self.low = low
        self.high = high
        self.kinds = _kinds(trace)
        self.launches = find_launches(trace)
        self.mark = captured_by(trace)
        self.captured = self._captured()
        start, end = trace.activities.start, trace.activities.end
        self.in_range = (start <= high) & (end >= low)
        self.length = np.maximum(np.minimum(end, high) - np.maximum(start, low), 0)

    def _captured(self) -> npt.NDArray[np.bool_] | None:
        """Which activities a compiled region launched; None if the trace can't tell."""
        call = self.launches.call
        if self.mark is None:
            nothing = self.trace.has_host_events and not self.trace.regions
            return np.zeros(len(call), dtype=bool) if nothing else None
        captured = np.zeros(len(call), dtype=bool)
        known = self.launches.known
        threads = self.trace.launch_calls.thread[call[known]]
        regions = self.trace.regions[self.mark]
        captured[known] = in_regions(self.launches.start[known], threads, regions)
        return captured

    def notes(self) -> list[str]:
        if not self.trace.devices:
            return ["no GPU activity in it: how busy a GPU was is unknown"]
        notes = []
        if self.captured is None and self.trace.regions:
            notes.append(
                f"no {REGION_MARKS[0]} regions in it: what compiled graphs launched is unknown"
                f" (`{REGION_MARKS[2]}` holds what ran eagerly after a graph break, too)"
            )
        elif self.captured is None:
            notes.append("no host events in it: what compiled regions launched is unknown")
        elif self.mark is None:
            notes.append("no compiled region in it: nothing counts as captured")
        elif self.mark != REGION_MARKS[0]:
            notes.append(
                f"no {REGION_MARKS[0]} regions in it: captured is what was launched inside"
                f" `{self.mark}`"
            )
        unknown = int((self.trace.activities.is_kernel & ~self.launches.known).sum())
        if unknown:
            notes.append(f"the calls that launched {unknown} kernels are not in it")
        return notes

    def device_time(self, number: int) -> DeviceTime:
        trace, low, high = self.trace, self.low, self.high
        here = trace.activities.device == number
        of_kind = _spans_by_kind(trace.activities, self.kinds, here)
        matrix = overlay(*(of_kind[kind] for kind in MATRIX_KINDS))
        compute = overlay(matrix, of_kind["other"])
        communication = of_kind["communication"]
        compute_ns = compute.measure(low, high)
        either_ns = overlay(compute, communication).measure(low, high)
        busy, opens = union(trace.activities.start[here], trace.activities.end[here])
        host, launch, gap, unknown = self._idle(busy, np.flatnonzero(here)[opens])
        in_range = here & self.in_range
        kernels = in_range & trace.activities.is_kernel
        captured, not_captured, capture_unknown = self._captured_time(kernels)
        device = trace.devices[number]
        busy_ns = busy.measure(low, high)
        return DeviceTime(
            device=device.index,
            pid=device.pid,
            name=trace.device_names.get(device.index) if isinstance(device.index, int) else None,
            kernel_count=int(kernels.sum()),
            copy_count=int((in_range & ~trace.activities.is_kernel).sum()),
            busy_us=busy_ns / 1e3,
            compute_us=compute_ns / 1e3,
            matrix_us=matrix.measure(low, high) / 1e3,
            gemm_us=of_kind["gemm"].measure(low, high) / 1e3,
            convolution_us=of_kind["convolution"].measure(low, high) / 1e3,
            attention_us=of_kind["attention"].measure(low, high) / 1e3,
            communication_us=communication.measure(low, high) / 1e3,
            exposed_communication_us=(either_ns - compute_ns) / 1e3,
            copy_us=of_kind["copy"].measure(low, high) / 1e3,
            idle_us=(high - low - busy_ns) / 1e3,
            idle_host_us=host,
            idle_launch_us=launch,
            idle_kernel_gap_us=gap,
            idle_unknown_us=unknown,
            captured_us=captured,
            not_captured_us=not_captured,
            capture_unknown_us=capture_unknown,
            kernels=self._kernel_times(kernels),
        )

    def _idle(
        self, busy: Intervals, opens: npt.NDArray[np.int64]
    ) -> tuple[float, float, float, float]:
        """Idle µs by cause: host, launch latency, gap between kernels, unknown.

        ``opens`` are the activities that end the gaps; after the last gap there is none.
        """
        start = np.concatenate(([0], busy.end))
        end = np.concatenate((busy.start, [self.trace.end]))
        known = np.append(self.launches.known[opens], True)
        launch = np.clip(np.append(self.launches.start[opens], self.trace.end), start, end)
        queued = known & (launch == start)
        late = known & ~queued
        parts = (
            Intervals(start[late], launch[late]),
            Intervals(launch[late], end[late]),
            Intervals(start[queued], end[queued]),
            Intervals(start[~known], end[~known]),
        )
        host, latency, gap, unknown = (part.measure(self.low, self.high) / 1e3 for part in parts)
        return host, latency, gap, unknown

    def _captured_time(
        self, kernels: npt.NDArray[np.bool_]
    ) -> tuple[float | None, float | None, float | None]:
        """Summed µs of kernels that were captured, were not, and may have been."""
        if self.captured is None:
            return None, None, None
        unknown = kernels & ~self.launches.known & (self.mark is not None)
        outside = kernels & ~self.captured & ~unknown
        captured, not_captured, may_be = (
            int(self.length[chosen].sum()) / 1e3
            for chosen in (kernels & self.captured, outside, unknown)
        )
        return captured, not_captured, may_be

    def _kernel_times(self, kernels: npt.NDArray[np.bool_]) -> list[KernelTime]:
        """By total time, longest first."""
        name = self.trace.activities.name[kernels]
        names = len(self.trace.names)
        counts = np.bincount(name, minlength=names).tolist()
        totals = (np.bincount(name, self.length[kernels], minlength=names) / 1e3).tolist()
        whole = sum(totals)
        times = [
            KernelTime(
                kernel, kernel_kind(kernel), count, total, total / count, share(total, whole)
            )
            for kernel, count, total in zip(self.trace.names, counts, totals, strict=True)
            if count
        ]
        return sorted(times, key=lambda kernel: (-kernel.total_us, kernel.name))
