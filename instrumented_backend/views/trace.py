"""What the GPUs of traces did, as text, CSV and JSON."""

import csv
import io
import json
import shutil
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

from tabulate import tabulate

from instrumented_backend.records.fields import field_names, field_values
from instrumented_backend.traces.utilization import DeviceTime, TraceTime, share

SCHEMA_VERSION = 1
TABLES = ("devices", "kernels")

# Shares of the window, with their titles in the text.
_SHARES = {
    "busy": "busy",
    "compute": "compute",
    "matrix": "matrix",
    "communication": "comm",
    "exposed_communication": "exposed",
    "copy": "copy",
}
_CAUSES = {
    "idle": "idle",
    "idle_host": "host",
    "idle_launch": "launch",
    "idle_kernel_gap": "kernel gap",
    "idle_unknown": "unknown",
}
_DEVICES_TITLE = (
    "% of the window in which a GPU was busy: computing, of that in matrix work (GEMM,"
    " convolution, attention); communicating, of that exposed, with nothing computing; copying."
    " captured: % of kernel time launched by compiled graphs"
)
_IDLE_TITLE = (
    "% of the window in which it was idle: the host had not launched more; the launch was on its"
    " way; the next kernel had been queued"
)
_NARROWEST_NAME = 20

Row = dict[str, object]


# --- Files --------------------------------------------------------------------------------------


def to_json(traces: list[TraceTime], top: int) -> str:
    """Times in µs, shares from 0 to 1; the ``top`` kernels of each GPU."""
    return json.dumps(
        {"schema_version": SCHEMA_VERSION, "traces": [_trace_values(t, top) for t in traces]},
        indent=1,
    )


def to_csv(traces: list[TraceTime], table: str, top: int) -> str:
    """A row for each GPU, or for each of its ``top`` kernels; what is unknown is empty."""
    rows = list(_device_rows(traces) if table == "devices" else _kernel_rows(traces, top))
    text = io.StringIO()
    if rows:
        columns = list(dict.fromkeys(column for row in rows for column in row))
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return text.getvalue()


def _trace_values(trace: TraceTime, top: int) -> Row:
    shares: Row = {
        f"{name}_share": _mean(_device_share(trace, device, name) for device in trace.devices)
        for name in _SHARES
    }
    devices = [
        {**_device_values(trace, device), "kernels": [asdict(k) for k in device.kernels[:top]]}
        for device in trace.devices
    ]
    return {**field_values(trace), **shares, "devices": devices}


def _device_values(trace: TraceTime, device: DeviceTime) -> Row:
    known = {name: value for name, value in field_values(device).items() if name != "kernels"}
    shares: Row = {
        f"{name}_share": _device_share(trace, device, name) for name in (*_SHARES, *_CAUSES)
    }
    return {**known, **shares, "captured_share": device.captured_share}


def _device_rows(traces: list[TraceTime]) -> Iterator[Row]:
    for trace in traces:
        head: Row = {
            "file": trace.file,
            "rank": trace.rank,
            "start_us": trace.start_us,
            "window_us": trace.window_us,
        }
        for device in trace.devices:
            yield {**head, **_device_values(trace, device)}
        if not trace.devices:
            names = [name for name in field_names(DeviceTime) if name != "kernels"]
            shares = [f"{name}_share" for name in (*_SHARES, *_CAUSES, "captured")]
            nothing: Row = dict.fromkeys([*names, *shares])
            yield {**head, **nothing}


def _kernel_rows(traces: list[TraceTime], top: int) -> Iterator[Row]:
    for trace in traces:
        for device in trace.devices:
            for kernel in device.kernels[:top]:
                yield {
                    "file": trace.file,
                    "rank": trace.rank,
                    "device": device.device,
                    "pid": device.pid,
                    **asdict(kernel),
                }


def _device_share(trace: TraceTime, device: DeviceTime, name: str) -> float | None:
    return share(getattr(device, f"{name}_us"), trace.window_us)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


# --- Text ---------------------------------------------------------------------------------------


def render(
    traces: list[TraceTime], tables: tuple[str, ...], top: int, width: int | None = None
) -> str:
    """The named tables; ``width`` is the terminal's (80 columns when piped)."""
    if width is None:
        width = shutil.get_terminal_size((80, 24)).columns
    parts = ["\n".join(_head(traces, trace, width) for trace in traces)]
    if "devices" in tables:
        parts.append(_wrap(_DEVICES_TITLE, width) + "\n" + _share_table(traces, _SHARES, True))
        if any(trace.devices for trace in traces):
            parts.append(_wrap(_IDLE_TITLE, width) + "\n" + _share_table(traces, _CAUSES, False))
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
    words += dict.fromkeys(device.name for device in trace.devices if device.name)
    since = f" from {trace.start_us / 1e3:.3f} ms" if trace.start_us else ""
    words.append(f"window {trace.window_us / 1e3:.3f} ms{since}")
    notes = [_wrap(f"  note: {note}", width, "    ") for note in trace.notes]
    return "\n".join([" · ".join(words), *notes])


def _are_ranks(traces: list[TraceTime]) -> bool:
    """Whether the traces are those of different ranks of one run, as far as they say."""
    ranks = [trace.rank for trace in traces]
    return None not in ranks and len(set(ranks)) == len(ranks)


def _label(traces: list[TraceTime], trace: TraceTime) -> str:
    return str(trace.rank) if _are_ranks(traces) else _file(traces, trace)


def _file(traces: list[TraceTime], trace: TraceTime) -> str:
    """As many of the path's last parts as tell it from the other traces."""
    parts = Path(trace.file).parts
    others = {Path(other.file).parts for other in traces} - {parts}
    for count in range(1, len(parts)):
        if all(other[-count:] != parts[-count:] for other in others):
            return "/".join(parts[-count:])
    return trace.file


def _share_table(traces: list[TraceTime], columns: dict[str, str], captured: bool) -> str:
    rows: list[tuple[str, str, list[float | None]]] = []
    for trace in traces:
        label = _label(traces, trace)
        for device in trace.devices:
            shares = [_device_share(trace, device, name) for name in columns]
            if captured:
                shares.append(device.captured_share)
            rows.append((label, _gpu(trace, device), shares))
        if not trace.devices:
            rows.append((label, "-", [None] * (len(columns) + captured)))
    if len(rows) > 1 and (_are_ranks(traces) or len(traces) == 1):
        means = [_mean(shares) for shares in zip(*(row[2] for row in rows), strict=True)]
        rows.append(("mean", "", means))
    label = "rank" if _are_ranks(traces) else "trace"
    header = [label, "GPU", *columns.values(), *(["captured"] if captured else [])]
    cells = [[label, gpu, *map(_percent, shares)] for label, gpu, shares in rows]
    align = ["left", *["right"] * (len(header) - 1)]
    return _table(header, cells, align)


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
        [k.kind, str(k.count), f"{k.total_us:.1f}", f"{k.mean_us:.2f}", _percent(k.share), k.name]
        for k in shown
    ]
    taken = sum(max(len(row[i]) for row in [header, *cells]) + 2 for i in range(5))
    room = max(width - taken, _NARROWEST_NAME)
    for row in cells:
        row[-1] = _short(row[-1], room)
    return f"{title}\n{_table(header, cells, ['left', *['right'] * 4, 'left'])}"


def _table(header: list[str], cells: list[list[str]], align: list[str]) -> str:
    # The header goes in as a row: as a header, tabulate would pad each column by two.
    rule = ["-" * max(len(row[i]) for row in [header, *cells]) for i in range(len(header))]
    rows = [header, rule, *cells]
    return str(tabulate(rows, tablefmt="plain", disable_numparse=True, colalign=align))


def _wrap(text: str, width: int, indent: str = "") -> str:
    return "\n".join(
        textwrap.wrap(
            text,
            max(width, 40),
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
    )


def _short(name: str, room: int) -> str:
    name = name.removeprefix("void ").replace("(anonymous namespace)::", "")
    return name if len(name) <= room else f"{name[: room - 3]}..."


def _gpu(trace: TraceTime, device: DeviceTime) -> str:
    same_index = [other for other in trace.devices if other.device == device.device]
    pid = f" (pid {device.pid})" if len(same_index) > 1 else ""
    return f"{'-' if device.device is None else device.device}{pid}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"
