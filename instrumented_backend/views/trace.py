"""What the GPUs of traces did, as text, CSV and JSON."""

import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from instrumented_backend.records.escapes import shown
from instrumented_backend.records.fields import field_names, field_values
from instrumented_backend.traces.utilization import DeviceTime, TraceTime, share
from instrumented_backend.units import milliseconds, whole
from instrumented_backend.units import share as share_cell
from instrumented_backend.views.grid import Column, draw
from instrumented_backend.views.output import to_json

SCHEMA_VERSION = 1
_ENDING = re.compile(r"(\.pt)?(\.trace)?\.json(\.gz)?$")  # of what profilers write
TABLES = ("devices", "kernels")


@dataclass(frozen=True)
class _Share:
    """A share of the window: its name in files, and above a column."""

    name: str
    header: str
    us: Callable[[DeviceTime], float]

    def of(self, trace: TraceTime, device: DeviceTime) -> float | None:
        return share(self.us(device), trace.window_us)


_SHARES = (
    _Share("busy_share", "busy", lambda device: device.busy_us),
    _Share("compute_share", "compute", lambda device: device.compute_us),
    _Share("matrix_share", "matrix", lambda device: device.matrix_us),
    _Share("communication_share", "comm", lambda device: device.communication_us),
    _Share("exposed_communication_share", "exposed", lambda one: one.exposed_communication_us),
    _Share("copy_share", "copy", lambda device: device.copy_us),
)
_CAUSES = (
    _Share("idle_share", "idle", lambda device: device.idle_us),
    _Share("idle_host_share", "host", lambda device: device.idle_host_us),
    _Share("idle_launch_share", "launch", lambda device: device.idle_launch_us),
    _Share("idle_kernel_gap_share", "kernel gap", lambda device: device.idle_kernel_gap_us),
    _Share("idle_unknown_share", "unknown", lambda device: device.idle_unknown_us),
)
_LEAST = ("copy", "exposed", "matrix")  # left out in this order where it is narrow
_DEVICES_TITLE = (
    "% of the window in which a GPU was busy: computing, of that in matrix work (GEMM,"
    " convolution, attention); communicating, of that exposed, with nothing computing; copying."
    " captured: % of kernel time launched by compiled graphs"
)
_IDLE_TITLE = (
    "% of the window in which it was idle: the host had not launched more; the launch was on its"
    " way; the next kernel had been queued"
)


# --- Files --------------------------------------------------------------------------------------


@dataclass
class TracesView:
    """The named ``tables`` (all of them, where none is named), and ``top`` kernels of each GPU."""

    traces: list[TraceTime]
    tables: tuple[str, ...]
    top: int

    def text(self, width: int) -> str:
        return _text(self.traces, self.tables or TABLES, self.top, width)

    def rows(self) -> list[dict[str, object]]:
        """A row for each GPU, or for each of its kernels; what is unknown is empty."""
        if self.tables[:1] == ("kernels",):
            return list(_kernel_rows(self.traces, self.top))
        return list(_device_rows(self.traces))

    def json(self) -> str:
        """Times in µs, shares from 0 to 1."""
        traces = [_trace_values(trace, self.top) for trace in self.traces]
        return to_json({"schema_version": SCHEMA_VERSION, "traces": traces})


def _trace_values(trace: TraceTime, top: int) -> dict[str, object]:
    shares: dict[str, object] = {
        each.name: _mean(each.of(trace, device) for device in trace.devices) for each in _SHARES
    }
    devices = [
        {**_device_values(trace, device), "kernels": [asdict(k) for k in device.kernels[:top]]}
        for device in trace.devices
    ]
    return {**field_values(trace), **shares, "devices": devices}


def _device_values(trace: TraceTime, device: DeviceTime) -> dict[str, object]:
    known = {name: value for name, value in field_values(device).items() if name != "kernels"}
    shares: dict[str, object] = {each.name: each.of(trace, device) for each in (*_SHARES, *_CAUSES)}
    return {**known, **shares, "captured_share": device.captured_share}


def _device_rows(traces: list[TraceTime]) -> Iterator[dict[str, object]]:
    for trace in traces:
        head: dict[str, object] = {
            "file": trace.file,
            "rank": trace.rank,
            "start_us": trace.start_us,
            "window_us": trace.window_us,
        }
        tail: dict[str, object] = {"notes": "; ".join(trace.notes) or None}
        for device in trace.devices:
            yield {**head, **_device_values(trace, device), **tail}
        if not trace.devices:
            names = [name for name in field_names(DeviceTime) if name != "kernels"]
            shares = [each.name for each in (*_SHARES, *_CAUSES)]
            nothing: dict[str, object] = dict.fromkeys([*names, *shares, "captured_share"])
            yield {**head, **nothing, **tail}


def _kernel_rows(traces: list[TraceTime], top: int) -> Iterator[dict[str, object]]:
    for trace in traces:
        for device in trace.devices:
            for kernel in device.kernels[:top]:
                yield {
                    "file": trace.file,
                    "rank": trace.rank,
                    "device": device.device,
                    "pid": device.pid,
                    **asdict(kernel),
                    "notes": "; ".join(trace.notes) or None,
                }


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


# --- Text ---------------------------------------------------------------------------------------


def _text(traces: list[TraceTime], tables: tuple[str, ...], top: int, width: int) -> str:
    parts = ["\n".join(_head(traces, trace, width) for trace in traces)]
    if "devices" in tables:
        parts.append(
            _wrap(_DEVICES_TITLE, width) + "\n" + _share_table(traces, _SHARES, True, width)
        )
        if any(trace.devices for trace in traces):
            parts.append(
                _wrap(_IDLE_TITLE, width) + "\n" + _share_table(traces, _CAUSES, False, width)
            )
    if "kernels" in tables:
        parts += [
            _kernel_table(traces, trace, device, top, width)
            for trace in traces
            for device in trace.devices
            if device.kernels and top
        ]
    return "\n\n".join(parts)


def _head(traces: list[TraceTime], trace: TraceTime, width: int) -> str:
    words = [_file(traces, trace)]
    if trace.rank is not None:
        words.append(f"rank {trace.rank}" + (f" of {trace.world_size}" if trace.world_size else ""))
    words += dict.fromkeys(shown(device.name) for device in trace.devices if device.name)
    since = f" from {milliseconds(trace.start_us)}" if trace.start_us else ""
    words.append(f"window {milliseconds(trace.window_us)}{since}")
    notes = [_wrap(f"  note: {note}", width, "    ") for note in trace.notes]
    return "\n".join([_wrap(" · ".join(words), width, "  "), *notes])


def _are_ranks(traces: list[TraceTime]) -> bool:
    """Whether the traces are those of different ranks of one run, as far as they say."""
    ranks = [trace.rank for trace in traces]
    return None not in ranks and len(set(ranks)) == len(ranks)


def _label(traces: list[TraceTime], trace: TraceTime) -> str:
    if _are_ranks(traces):
        return str(trace.rank)
    files = [_file(traces, each) for each in traces]
    short = [_ENDING.sub("", file) for file in files]
    names = short if len(set(short)) == len(set(files)) and all(short) else files
    return names[traces.index(trace)]


def _file(traces: list[TraceTime], trace: TraceTime) -> str:
    """As many of the path's last parts as distinguish it from the other traces."""
    parts = Path(trace.file).parts
    others = {Path(other.file).parts for other in traces} - {parts}
    for count in range(1, len(parts)):
        if all(other[-count:] != parts[-count:] for other in others):
            return shown("/".join(parts[-count:]))
    return shown(trace.file)


def _share_table(
    traces: list[TraceTime], columns: tuple[_Share, ...], captured: bool, width: int
) -> str:
    rows: list[tuple[str, str, list[float | None]]] = []
    for trace in traces:
        label = _label(traces, trace)
        for device in trace.devices:
            shares = [each.of(trace, device) for each in columns]
            if captured:
                shares.append(device.captured_share)
            rows.append((label, _gpu(trace, device), shares))
        if not trace.devices:
            rows.append((label, "-", [None] * (len(columns) + captured)))
    if len(rows) > 1 and (_are_ranks(traces) or len(traces) == 1):
        means = [_mean(shares) for shares in zip(*(row[2] for row in rows), strict=True)]
        rows.append(("mean", "", means))
    label = "rank" if _are_ranks(traces) else "trace"
    header = [label, "GPU", *(each.header for each in columns), *(["captured"] if captured else [])]
    cells = [[label, gpu, *map(share_cell, shares)] for label, gpu, shares in rows]
    return _table(header, cells, {label}, width, is_one_line=False)


def _kernel_table(
    traces: list[TraceTime], trace: TraceTime, device: DeviceTime, top: int, width: int
) -> str:
    shown = device.kernels[:top]
    title = f"kernels of GPU {_gpu(trace, device)}"
    if len(traces) > 1:
        title += f", {'rank ' if _are_ranks(traces) else ''}{_label(traces, trace)}"
    if len(shown) < len(device.kernels):
        title += f", the {len(shown)} longest of {len(device.kernels)}"
    header = ["kind", "count", "total us", "mean us", "%", "kernel"]
    cells = [
        [
            *(
                kernel.kind,
                whole(kernel.count),
                f"{kernel.total_us:,.1f}",
                f"{kernel.mean_us:,.2f}",
            ),
            *(share_cell(kernel.share), _plain(kernel.name)),
        ]
        for kernel in shown
    ]
    return f"{title}\n{_table(header, cells, {'kind', 'kernel'}, width, is_one_line=True)}"


def _table(
    header: list[str],
    cells: list[list[str]],
    words: Collection[str],
    width: int,
    is_one_line: bool,
) -> str:
    """``words`` are the columns with words in them."""
    columns = [
        Column(name, name, list(column), name not in words, is_one_line)
        for name, column in zip(header, zip(*cells, strict=True), strict=True)
    ]
    return draw(columns, width, _LEAST)


def _wrap(text: str, width: int, indent: str = "") -> str:
    return "\n".join(
        textwrap.wrap(
            shown(text),
            max(width, 40),
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
    )


def _plain(kernel: str) -> str:
    return kernel.removeprefix("void ").replace("(anonymous namespace)::", "")


def _gpu(trace: TraceTime, device: DeviceTime) -> str:
    same_index = [other for other in trace.devices if other.device == device.device]
    pid = f" (pid {device.pid})" if len(same_index) > 1 else ""
    return shown(f"{'-' if device.device is None else device.device}{pid}")
