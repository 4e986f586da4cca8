"""A Chrome trace of PyTorch's profiler as numpy arrays: what ran on GPUs, and who launched it."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from instrumented_backend.traces.event_stream import Event, EventStream, Fields, TraceError
from instrumented_backend.traces.intervals import Times

# The categories of Kineto's events; torch 1.11 and older capitalised them.
KERNELS = frozenset({"kernel", "concurrent_kernel", "Kernel"})
COPIES = frozenset({"gpu_memcpy", "gpu_memset", "Memcpy", "Memset"})
LAUNCHES = frozenset(
    {"cuda_runtime", "cuda_driver", "hip_runtime", "xpu_runtime", "xpu_driver"}
    | {"privateuse1_runtime", "privateuse1_driver", "mtia_runtime", "Runtime"}
)
HOST = frozenset({"cpu_op", "user_annotation", "Operator"})

# What marks compiled regions, the best first. This backend's own marks hold one call of a compiled
# graph. Plain Inductor's `## Call CompiledFxGraph` comes close. Dynamo's `Torch-Compiled Region`
# only says that something was compiled: it holds what runs eagerly after a graph break, too (of two
# H200 that ran no compiled graph, it held 7 and 30 % of the kernels' time), and has no backward.
REGION_MARKS = ("TORCHDYNAMO", "## Call CompiledFxGraph", "Torch-Compiled Region")
_REGION = re.compile(rf"(?:({REGION_MARKS[0]})(?:_BACKWARD)?|({'|'.join(REGION_MARKS[1:])})\b.*)")

# Every mark, and ProfilerStep, sorts before this; most operators (aten::, triton_) do not.
_AFTER_MARKS = "U"
_STEP = re.compile(r"ProfilerStep#(\d{1,15})")  # more digits than a float has are no number
MAX_DEVICES = 1024  # each looks through all activities
_FLUSH_ROWS = 1 << 14
_FAR_US = 1e12  # 12 days from the rest: no time of the same profile
_COARSE_US = 0.01
_LISTED = 5  # categories named in an error

_Floats = npt.NDArray[np.float64]
_timestamp = attrgetter("ts")


@dataclass
class HostSpans:
    """Calls or regions on the host's threads; ns from the trace's first event."""

    start: Times
    end: Times
    thread: npt.NDArray[np.int64]  # a number for each (pid, tid)
    correlation: npt.NDArray[np.int64]  # -1: none


@dataclass
class NamedSpans(HostSpans):
    """Spans of the host that were asked for by name."""

    name: npt.NDArray[np.int64]  # index into `Trace.names`


@dataclass
class Activities:
    """Kernels, copies and memsets on GPUs; ns from the trace's first event."""

    start: Times
    end: Times
    device: npt.NDArray[np.int64]  # index into `Trace.devices`
    name: npt.NDArray[np.int64]  # index into `Trace.names`
    is_kernel: npt.NDArray[np.bool_]
    correlation: npt.NDArray[np.int64]  # -1: none


@dataclass(frozen=True)
class Device:
    """A GPU: its index in the profiled process, and the ``pid`` of its events in the file."""

    index: int | str | None
    pid: int | str | None


@dataclass
class Trace:
    """One file: as a rule the profile of one process (rank). Times in ns from its first event.

    ``end`` is where the last operator, annotation, runtime call, kernel or copy ends. ``regions``
    are by what marks them (`REGION_MARKS`), ``steps`` by the number in ``ProfilerStep#n``.
    ``threads`` has the ``pid`` and ``tid`` of each of the host's threads, by our number.
    """

    path: Path
    end: int
    activities: Activities
    launch_calls: HostSpans
    regions: dict[str, HostSpans]
    spans: NamedSpans  # of the names that `read_trace` was asked for
    steps: dict[int, tuple[int, int]]
    threads: list[tuple[int | str | None, int | str | None]]
    devices: list[Device]
    names: list[str]
    has_host_events: bool
    rank: int | None
    world_size: int | None
    device_names: dict[int, str]
    notes: list[str]


def read_trace(
    path: str | Path,
    progress: Callable[[int], None] | None = None,
    *,
    host: bool = True,
    wanted: Callable[[str], bool] | None = None,
) -> Trace:
    """Read ``.json`` or ``.json.gz``; raises TraceError, in one line, for what is not a profile.

    ``progress`` is told how many of the file's bytes have been read. Without ``host`` only what
    ran on GPUs is kept, a quarter faster. ``wanted`` is asked for the names of the operators and
    annotations that ``spans`` shall have.
    """
    stream = EventStream(Path(path), progress)
    gatherer = _Gatherer(host, wanted)
    for events in stream:
        gatherer.add(events)
        del events  # see EventStream
    return gatherer.trace(stream)


# --- Gathering ----------------------------------------------------------------------------------


class _Numbers(dict[Any, int]):
    """Numbers its keys in the order in which they are first asked for."""

    def __missing__(self, key: Any) -> int:
        number = self[key] = len(self)
        return number


class _Columns:
    """Rows of numbers, kept as arrays; None becomes NaN."""

    def __init__(self, count: int) -> None:
        self.lists: list[list[Any]] = [[] for _ in range(count)]
        self._arrays: list[list[_Floats]] = [[np.zeros(0)] for _ in range(count)]

    def append(self, *row: float | None) -> None:
        for values, value in zip(self.lists, row, strict=True):
            values.append(value)

    def flush(self, at_least: int = 1) -> None:
        if len(self.lists[0]) >= at_least:
            for values, arrays in zip(self.lists, self._arrays, strict=True):
                arrays.append(np.array(values, dtype=np.float64))
                values.clear()

    def arrays(self) -> list[_Floats]:
        self.flush()
        return [np.concatenate(arrays) for arrays in self._arrays]


class _Gatherer:
    """Keeps what matters of the events, as columns."""

    def __init__(self, host: bool, wanted: Callable[[str], bool] | None) -> None:
        self._wanted = wanted
        self.seen = 0
        self.host_events = 0
        self.first_categories: set[str] = set()
        self.devices = _Numbers()
        self.names = _Numbers()
        self.threads = _Numbers()
        self.activities = _Columns(6)  # ts, dur, device, name, is_kernel, correlation
        self.launch_calls = _Columns(4)  # ts, dur, thread, correlation
        self.regions = _Columns(4)  # ts, dur, thread, index into REGION_MARKS
        self.spans = _Columns(4)  # ts, dur, thread, name
        self.steps = _Columns(3)  # ts, dur, number
        self.extents = _Columns(2)  # first ts and last end of some host events
        self._on_gpu: list[Event] = []
        self._calls: list[Event] = []
        self._on_host: list[Event] = []
        self._keep = dict.fromkeys(KERNELS | COPIES, self._on_gpu.append)
        if host:
            self._keep |= dict.fromkeys(LAUNCHES, self._calls.append)
            self._keep |= dict.fromkeys(HOST, self._on_host.append)

    def add(self, events: list[Event]) -> None:
        if not self.seen:
            self.first_categories = {event.cat for event in events if event.cat}
        self.seen += len(events)
        keep_of = self._keep.get
        for event in events:
            keep = keep_of(event.cat)
            if keep is not None:
                keep(event)
        for kept, add in (
            (self._on_gpu, self._add_activities),
            (self._calls, self._add_launches),
            (self._on_host, self._add_host),
        ):
            if kept:
                add(kept)
                kept.clear()

    def _add_activities(self, events: list[Event]) -> None:
        events = [event for event in events if event.ph == "X"]
        ts, dur, device, name, is_kernel, correlation = self.activities.lists
        devices, names = self.devices, self.names
        ts += [event.ts for event in events]
        dur += [event.dur for event in events]
        device += [devices[event.args.device, event.pid] for event in events]
        name += [names[event.name] for event in events]
        is_kernel += [event.cat in KERNELS for event in events]
        correlation += [event.args.correlation for event in events]
        self.activities.flush(_FLUSH_ROWS)

    def _add_launches(self, events: list[Event]) -> None:
        events = [event for event in events if event.ph == "X"]
        ts, dur, thread, correlation = self.launch_calls.lists
        threads = self.threads
        ts += [event.ts for event in events]
        dur += [event.dur for event in events]
        thread += [threads[event.pid, event.tid] for event in events]
        correlation += [event.args.correlation for event in events]
        self.launch_calls.flush(_FLUSH_ROWS)

    def _add_host(self, events: list[Event]) -> None:
        self.host_events += len(events)
        for event in [e for e in events if e.name < _AFTER_MARKS and e.ph == "X"]:
            if region := _REGION.fullmatch(event.name):
                mark = REGION_MARKS.index(region[1] or region[2])
                thread = self.threads[event.pid, event.tid]
                self.regions.append(event.ts, event.dur, thread, mark)
            elif step := _STEP.fullmatch(event.name):
                self.steps.append(event.ts, event.dur, int(step[1]))
        if self._wanted is not None:
            for event in events:
                if event.ph == "X" and self._wanted(event.name):
                    thread = self.threads[event.pid, event.tid]
                    self.spans.append(event.ts, event.dur, thread, self.names[event.name])
            self.spans.flush(_FLUSH_ROWS)
        try:
            first = min(map(_timestamp, events))
            last = max([event.ts + event.dur for event in events])  # type: ignore[operator]
        except TypeError:  # an event without ts or dur
            times = [event.ts for event in events if event.ts is not None]
            if not times:
                return
            first = min(times)
            last = max((event.ts or first) + (event.dur or 0.0) for event in events)
        self.extents.append(first, last)

    def trace(self, stream: EventStream) -> Trace:
        activities, launch_calls, regions, spans, steps, extents = (
            columns.arrays()
            for columns in (
                self.activities,
                self.launch_calls,
                self.regions,
                self.spans,
                self.steps,
                self.extents,
            )
        )
        fields = stream.fields
        self._check(stream.path, fields, len(activities[0]) + len(launch_calls[0]))
        if len(self.devices) > MAX_DEVICES:
            raise TraceError(f"{stream.path}: more than {MAX_DEVICES:,} GPUs in it")
        clock = _Clock(np.concatenate([activities[0], launch_calls[0], *extents]))
        start, end, device, name, is_kernel, correlation = clock.spans(activities)
        devices, device_of = _devices(self.devices)
        rank, world_size = _distributed(fields.distributedInfo)
        return Trace(
            path=stream.path,
            activities=Activities(
                start,
                end,
                device_of[device.astype(np.int64)],
                name.astype(np.int64),
                is_kernel.astype(np.bool_),
                _identifiers(correlation),
            ),
            launch_calls=_host_spans(*clock.spans(launch_calls)),
            regions=_by_mark(*clock.spans(regions)),
            spans=_named_spans(*clock.spans(spans)),
            steps=_by_number(*clock.spans(steps)),
            end=max(clock.last, int(clock.ns(extents[1]).max(initial=0))),
            threads=list(self.threads),
            devices=devices,
            names=list(self.names),
            has_host_events=self.host_events > 0,
            rank=rank,
            world_size=world_size,
            device_names=_device_names(fields.deviceProperties),
            notes=_notes(stream, clock),
        )

    def _check(self, path: Path, fields: Fields, kept: int) -> None:
        if not self.seen:
            raise TraceError(f"{path}: no events in it")
        named_by_kineto = fields.schemaVersion is not None or fields.deviceProperties is not None
        if not kept and not self.host_events and not named_by_kineto:
            found = ", ".join(sorted(self.first_categories)[:_LISTED]) or "none"
            raise TraceError(
                f"{path}: no event of PyTorch's profiler; the categories in it: {found}"
            )


class _Clock:
    """Turns µs since whenever into ns from the first event; `odd` counts unusable times."""

    def __init__(self, ts: _Floats) -> None:
        ts = ts[np.isfinite(ts)]
        self._middle = float(np.median(ts)) if len(ts) else 0.0
        ts = ts[self._usable(ts)]
        self._first = float(ts.min()) if len(ts) else 0.0
        self.resolution_us = float(np.spacing(np.abs(ts).max())) if len(ts) else 0.0
        self.last = 0
        self.odd = {"without a usable ts": 0, "with a negative dur": 0, "without dur": 0}

    def _usable(self, ts: _Floats) -> npt.NDArray[np.bool_]:
        return np.abs(ts - self._middle) < _FAR_US  # not so for NaN

    def ns(self, ts: _Floats) -> Times:
        """Of the usable ones among ``ts``."""
        return np.rint((ts[self._usable(ts)] - self._first) * 1e3).astype(np.int64)

    def spans(self, columns: list[_Floats]) -> tuple[Any, ...]:
        """Start and end in ns for columns that begin with ts and dur, and the other columns.

        Without a ts, or with a negative dur, a row is left out; without dur it is zero long.
        """
        ts, dur = columns[:2]
        timed = self._usable(ts)
        backwards = timed & (dur < 0)
        endless = timed & ~(dur < _FAR_US)
        self.odd["without a usable ts"] += int((~timed).sum())
        self.odd["with a negative dur"] += int(backwards.sum())
        self.odd["without dur"] += int(endless.sum())
        good = timed & ~backwards
        start = self.ns(ts[good])
        # From the duration: ts + dur would lose the last digits of a large ts.
        end = start + np.rint(np.where(endless, 0.0, dur)[good] * 1e3).astype(np.int64)
        self.last = max(self.last, int(end.max(initial=0)))
        return (start, end, *(column[good] for column in columns[2:]))


def _devices(numbers: dict[Any, int]) -> tuple[list[Device], npt.NDArray[np.int64]]:
    """The GPUs, and which of them each of our numbers means: ``args.device`` may be missing."""
    found = [Device(pid if index is None else index, pid) for index, pid in numbers]
    devices = list(dict.fromkeys(found))
    return devices, np.array([devices.index(device) for device in found], dtype=np.int64)


def _identifiers(values: _Floats) -> npt.NDArray[np.int64]:
    return np.where(np.abs(values) < 2.0**53, values, -1.0).astype(np.int64)


def _host_spans(start: Times, end: Times, thread: _Floats, correlation: _Floats) -> HostSpans:
    return HostSpans(start, end, thread.astype(np.int64), _identifiers(correlation))


def _named_spans(start: Times, end: Times, thread: _Floats, name: _Floats) -> NamedSpans:
    none = np.full(len(start), -1)
    return NamedSpans(start, end, thread.astype(np.int64), none, name.astype(np.int64))


def _by_mark(start: Times, end: Times, thread: _Floats, mark: _Floats) -> dict[str, HostSpans]:
    spans = {}
    for i, name in enumerate(REGION_MARKS):
        of_mark = mark == i
        if of_mark.any():
            none = np.full(int(of_mark.sum()), np.nan)
            spans[name] = _host_spans(start[of_mark], end[of_mark], thread[of_mark], none)
    return spans


def _by_number(start: Times, end: Times, number: _Floats) -> dict[int, tuple[int, int]]:
    steps: dict[int, tuple[int, int]] = {}
    for low, high, step in zip(start.tolist(), end.tolist(), number.tolist(), strict=True):
        before = steps.get(int(step), (low, high))
        steps[int(step)] = min(low, before[0]), max(high, before[1])
    return dict(sorted(steps.items()))


def _notes(stream: EventStream, clock: _Clock) -> list[str]:
    odd = {"malformed": stream.malformed, **clock.odd}
    resolution_us = clock.resolution_us
    notes = ['a second list of "traceEvents": left out'] if stream.second_list else []
    notes += [
        f"{count} event{'s' * (count > 1)} {what}: "
        + ("taken as zero long" if what == "without dur" else "left out")
        for what, count in odd.items()
        if count
    ]
    if resolution_us > _COARSE_US:
        notes.append(f"timestamps as large as these are only good to {resolution_us:.2g} us")
    return notes


def _distributed(info: Any) -> tuple[int | None, int | None]:
    if not isinstance(info, dict):
        return None, None
    rank, world_size = info.get("rank"), info.get("world_size")
    return (
        rank if _is_number(rank) else None,
        world_size if _is_number(world_size) else None,
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and abs(value) < 2**63


def _device_names(properties: Any) -> dict[int, str]:
    return {
        device["id"]: device["name"]
        for device in (properties if isinstance(properties, list) else ())
        if isinstance(device, dict)
        and _is_number(device.get("id"))
        and isinstance(device.get("name"), str)
    }
