"""The report as text, no wider than the terminal."""

import shutil
from collections.abc import Sequence

from instrumented_backend.records import BreakRecord, DeviceRecord, OpsRecord, Report, notes
from instrumented_backend.records.compilation import longest_first
from instrumented_backend.views.advice import facts, next_steps
from instrumented_backend.views.causes import BLOCKS, render_blocks
from instrumented_backend.views.grid import Column, draw
from instrumented_backend.views.tables import TABLES, Cell, Row, Table
from instrumented_backend.views.words import (
    count,
    percent,
    phase,
    seconds,
    short_path,
    size,
    wrap,
)

PREFIX = "instrumented: "
MAX_ROWS = 100
WORTH_NAMING_PCT = 1.0  # of op time
MAX_LINES = 3  # of breaks and skipped functions in the summary


def render(report: Report, tables: tuple[str, ...], width: int | None = None) -> str:
    """The named tables, in our order; ``width`` is the terminal's (80 columns when piped)."""
    if width is None:
        width = shutil.get_terminal_size((80, 24)).columns
    parts = []
    for name in tables:
        part = _summary(report, width) if name == "summary" else _table(report, name, width)
        if part:
            parts.append(part)
    return "\n\n".join(parts)


# --- The summary --------------------------------------------------------------------------------


def _summary(report: Report, width: int) -> str:
    summary = report.summary
    lines = wrap(
        f"{PREFIX}{count(summary.graphs, 'graph')}, {count(summary.graph_calls, 'call')} "
        f"(+{summary.backward_calls} backward), "
        f"{count(summary.graph_breaks, 'graph break')}, "
        f"{count(summary.recompiles, 'recompile')} · "
        f"torch {report.run.torch.partition('+')[0]}, {report.run.device}",
        width,
    )
    lines += wrap(_captured(report), width)
    lines += wrap(_device_line(report.ops.device), width)
    lines += wrap(_compile_line(report), width)
    lines += _break_lines(report.breaks, width)
    lines += _missed_lines(report, width)
    for note in report.coded_notes({notes.LOST}):
        lines += wrap(note.text, width)
    lines += wrap(_next_step(report), width)
    return "\n".join(lines)


def _captured(report: Report) -> str:
    summary, ops = report.summary, report.ops
    captured, total = summary.captured_ops, summary.total_ops
    if total is None:
        known = "-" if captured is None else str(captured)
        graph_ops = count(summary.graph_ops, "op")
        reason = ops.note or "not measured"
        return f"captured {known}/- ops: {reason} · {graph_ops} in the graphs, each counted once"
    line = f"captured {captured}/{total} ops ({percent(summary.pct_ops)})"
    if ops.total_time_us and ops.captured.time_us is not None:
        time = _times(ops.captured.time_us, ops.total_time_us)
        line += f", {time} op time ({percent(summary.pct_time)})"
    return f"{line} · {_certainty(ops)}"


def _certainty(ops: OpsRecord) -> str:
    """How far the captured line can be trusted."""
    if ops.status == "exact":
        words = "exact, the whole run observed"
    else:
        words = f"sampled, {percent(ops.observed_pct)} of the calls observed"
        if ops.largest_spread is not None:
            words += f", ± {ops.largest_spread:.1f} points"
    if ops.captured.estimated:
        words += "; some captured ops estimated"
    return words if ops.note is None else f"{words}; {ops.note}"


def _device_line(device: DeviceRecord | None) -> str:
    """Kernel time, where it was asked for."""
    if device is None:
        return ""
    if device.pct_captured is None:
        return f"device time: unknown: {device.note}"
    line = (
        f"device time: captured {_times(device.captured_us, device.kernel_us)} of kernel time "
        f"({percent(device.pct_captured)}) · sampled, {count(device.windows, 'window')}, "
        f"{percent(device.observed_pct)} of the calls observed"
    )
    # Measured on an H100: docs/gpu-and-traces.md.
    line += "; the process runs slower from the first window on, up to 15 %"
    return line if device.note is None else f"{line}; {device.note}"


def _times(part_us: float, whole_us: float) -> str:
    """``41.2/45.0 ms``: both in the unit that suits the larger one."""
    for unit, us in (("s", 1e6), ("ms", 1e3)):
        if whole_us >= us:
            return f"{part_us / us:.3g}/{whole_us / us:.3g} {unit}"
    return f"{part_us:.3g}/{whole_us:.3g} µs"


def _missed_lines(report: Report, width: int) -> list[str]:
    """The eager ops that took most of the time, if they took any worth naming."""
    lines = []
    for record in report.ops.missing[:MAX_LINES]:
        share = report.ops.pct_of_op_time(record.time_us)
        if share < WORTH_NAMING_PCT:
            break
        place = short_path(record.file, record.line)
        lines += wrap(
            f"missed {record.op} at {place}: {share:.1f} % of op time, "
            f"{count(record.count, 'call')}",
            width,
        )
    return lines


def _compile_line(report: Report) -> str:
    graphs = report.caches.graphs
    cached = f"{graphs.hit} of {count(len(report.graphs), 'graph')} from the cache"
    generated = sum(kernel.language != "extern" for kernel in report.kernels)
    if graphs.bypass:
        cached += f" ({graphs.bypass} could not be cached)"
    return (
        f"compiled in {seconds(report.compile.total_s)}"
        f"{_phases(report.compile.phases)} · {count(generated, 'kernel')} · {cached}"
    )


def _phases(phases: dict[str, float]) -> str:
    """The two longest phases, which are what there is to do something about."""
    words = [f"{phase(name)} {seconds(took)}" for name, took in longest_first(phases)[:2]]
    return f" ({', '.join(words)})" if words else ""


def _break_lines(records: list[BreakRecord], width: int) -> list[str]:
    skipped = [(function, record) for record in records for function in record.skipped]
    lines = []
    for function, record in skipped[:MAX_LINES]:
        head = f"ran eagerly: {function.function} ({short_path(function.file, function.line)})"
        lines += wrap(f"{head}: {function.reason or record.reason}", width, max_lines=2)
    if len(skipped) > MAX_LINES:
        lines.append(f"ran eagerly: {len(skipped) - MAX_LINES} more")
    # What has no line can't be acted on: it is in the table.
    breaks = [
        record
        for record in records
        if record.file is not None and (record.kind != "gave up" or not record.skipped)
    ]
    for record in breaks[:MAX_LINES]:
        what = "gave up" if record.kind == "gave up" else "graph break"
        place = short_path(record.file, record.line)
        inside = f" in {record.function}" if record.function else ""
        lines += wrap(f"{what} at {place}{inside}: {record.reason}", width, max_lines=2)
    if len(breaks) > MAX_LINES:
        lines.append(f"graph break: {len(breaks) - MAX_LINES} more")
    return lines


def _next_step(report: Report) -> str:
    share = report.summary.pct_time
    missed = report.ops.missing and share is not None and share < 100 - WORTH_NAMING_PCT
    if missed and not report.breaks:
        return "next: INSTRUMENTED_TABLES=summary,missing lists every eager op with its line"
    if report.breaks:
        return "next: INSTRUMENTED_TABLES=summary,breaks lists every cause with its line"
    if report.recompiles:
        return "next: INSTRUMENTED_TABLES=summary,recompiles says which guards failed"
    return "next: INSTRUMENTED_TABLES=all shows graphs, kernels, caches, compile times"


# --- Tables -------------------------------------------------------------------------------------


def _table(report: Report, name: str, width: int) -> str:
    table = TABLES[name]
    if name in BLOCKS:
        text = render_blocks(table.title, BLOCKS[name](report), width, MAX_ROWS)
    else:
        text = render_rows(table, table.rows(report), width, MAX_ROWS)
    if not text:
        return ""
    said = facts(report, name) + [f"next: {step}" for step in next_steps(report, name)]
    below = [line for part in said for line in wrap(part, width, break_words=True)]
    return "\n".join([text, *below])


def render_rows(table: Table, rows: Sequence[Row], width: int, max_rows: int) -> str:
    """The rows under the table's title; nothing where there are none."""
    if not rows:
        return ""
    shown = [
        {key: _cell(key, value) for key, value in row.items() if key not in table.only_in_files}
        for row in rows[:max_rows]
    ]
    names = _shown_columns(shown)
    columns = []
    for name in names:
        cells = [row.get(name, "") for row in shown]
        is_figure = all(_is_figure(row.get(name)) for row in rows[:max_rows])
        columns.append(Column(name, _header(name), cells, is_figure))
    text = draw(columns, width, table.least)
    more = f"\n... {len(rows) - max_rows} more rows in the report" if len(rows) > max_rows else ""
    return f"{table.title}\n{text}{more}"


def _shown_columns(rows: list[dict[str, str]]) -> list[str]:
    """The columns in which at least one row has something to say."""
    columns = dict.fromkeys(key for row in rows for key in row)
    return [column for column in columns if any(row.get(column) for row in rows)]


def _cell(column: str, value: Cell) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return _short_place(value) if column == "where" else value
    if column.endswith("_s"):
        return f"{value:.2f}"
    if column.endswith(("_us", "_pct")):
        return f"{value:.1f}"
    if column.endswith("_gb"):
        return size(value * 1e9)
    return str(value)


def _short_place(where: str) -> str:
    file, _, line = where.rpartition(":")
    return short_path(file, line)


def _header(column: str) -> str:
    """``compile_s`` → ``compile (s)``; ``gb_per_s`` → ``GB/s``; ``moved_gb``'s cells have units."""
    if column == "gb_per_s":
        return "GB/s"
    column = column.removesuffix("_gb")
    for suffix, unit in (("_s", "s"), ("_us", "µs"), ("_pct", "%")):
        if column.endswith(suffix):
            return f"{column.removesuffix(suffix).replace('_', ' ')} ({unit})"
    return column.replace("_", " ")


def _is_figure(value: Cell) -> bool:
    """A number, or the text of one."""
    if not isinstance(value, str):
        return True
    return value.replace(".", "", 1).replace("e-", "", 1).isdigit()
