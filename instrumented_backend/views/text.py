"""The report as text, no wider than the terminal."""

from collections.abc import Sequence

from instrumented_backend.records import (
    BreakRecord,
    DeviceRecord,
    LedgerRow,
    LedgerSection,
    OpsRecord,
    Report,
    notes,
)
from instrumented_backend.records.causes import GAVE_UP
from instrumented_backend.records.compilation import longest_first
from instrumented_backend.records.escapes import shown_lines
from instrumented_backend.units import (
    COLUMNS,
    duration,
    durations,
    percent,
    seconds,
    size,
    whole,
    whole_percent,
    with_spread,
)
from instrumented_backend.views.advice import LARGE_SPREAD_POINTS, next_steps, remarks
from instrumented_backend.views.causes import BLOCKS, render_blocks
from instrumented_backend.views.gpu import gpu_lines
from instrumented_backend.views.grid import Column, draw
from instrumented_backend.views.meanings import ledger_words
from instrumented_backend.views.next_steps import TRIAL, at_most
from instrumented_backend.views.next_steps import next_steps as next_change
from instrumented_backend.views.not_compiled import not_compiled
from instrumented_backend.views.output import Cell, Place, TableRow, terminal_width
from instrumented_backend.views.running import running_lines
from instrumented_backend.views.tables import TABLES, Table
from instrumented_backend.views.words import count, phase, short_path, wrap

PREFIX = "instrumented: "
MAX_ROWS = 100
_NUMBERED = frozenset({"compiled", "graph", "line", "pid", "rank"})  # names that are numbers
WORTH_NAMING_PCT = 1.0  # of op time, or of wall time
MAX_LINES = 3  # of breaks and skipped functions in the summary


def render(report: Report, tables: tuple[str, ...], width: int | None = None) -> str:
    """The named tables, in our order; ``width`` is the terminal's (80 columns when piped)."""
    if width is None:
        width = terminal_width()
    parts = []
    for name in tables:
        part = _summary(report, width) if name == "summary" else _table(report, name, width)
        if part:
            parts.append(part)
    return shown_lines("\n\n".join(parts))


# --- The summary --------------------------------------------------------------------------------


def _summary(report: Report, width: int) -> str:
    summary = report.summary
    lines = [line for said in not_compiled(report) for line in wrap(f"{PREFIX}{said}", width)]
    lines += wrap(
        f"{PREFIX}{count(summary.graphs, 'graph')}, {count(summary.graph_calls, 'call')} "
        f"(+{whole(summary.backward_calls)} backward), "
        f"{count(summary.graph_breaks, 'graph break')}, "
        f"{count(summary.recompiles, 'recompile')} · "
        f"torch {report.run.torch.partition('+')[0]}, {report.run.device}",
        width,
    )
    lines += [line for said in running_lines(report) for line in wrap(said, width)]
    lines += wrap(_ledger_line(report), width)
    lines += [line for said in gpu_lines(report.gpu) for line in wrap(said, width)]
    lines += wrap(_captured(report), width)
    lines += wrap(_device_line(report.ops.device), width)
    lines += wrap(_compile_line(report), width)
    lines += _break_lines(report.breaks, width)
    lines += _missed_lines(report, width)
    for note in report.coded_notes({notes.LOST}):
        lines += wrap(note.text, width)
    lines += wrap(_next_step(report), width, break_words=True)
    return "\n".join(lines)


def _ledger_line(report: Report) -> str:
    """``41.2 s: compiled code 61 % · eager ops 17 % · Python 19 % · compiling 3 %``"""
    ledger = report.ledger
    main = [row for row in ledger.rows if row.threads == "main"]
    if not main:
        return ""
    parts = [
        f"{ledger_words(row.row)} {whole_percent(share)}"
        for row, share in _worth_naming(ledger, main)
    ]
    unknown = [ledger_words(row.row) for row in main if row.seconds is None]
    if unknown:
        parts.append(f"not known: {', '.join(unknown)}")
    wall_s = report.run.wall_s if ledger.wall_s is None else ledger.wall_s
    line = ("" if wall_s is None else f"{seconds(wall_s)}: ") + " · ".join(parts)
    spread = ledger.largest_spread_pct
    if spread is not None and spread > LARGE_SPREAD_POINTS:
        line += f" · sampled, ± {spread:.0f} points; INSTRUMENTED_OPS=always observes all"
    others = [
        f"{ledger_words(row.row)} {seconds(row.seconds)}"
        for row, _ in _worth_naming(ledger, [row for row in ledger.rows if row not in main])
        if row.seconds is not None
    ]
    return f"{line} · other threads: {', '.join(others)}" if others else line


def _worth_naming(ledger: LedgerSection, rows: list[LedgerRow]) -> list[tuple[LedgerRow, float]]:
    """Those of at least 1 % of the wall time, with their shares in percent, the largest first."""
    shares = [(row, share) for row in rows if (share := ledger.share_pct(row)) is not None]
    named = [(row, share) for row, share in shares if share >= WORTH_NAMING_PCT]
    return sorted(named, key=lambda row_share: row_share[1], reverse=True)


def _captured(report: Report) -> str:
    summary, ops = report.summary, report.ops
    captured, total = summary.captured_ops, summary.total_ops
    known = "-" if captured is None else whole(captured)
    if total is None:
        graph_ops = count(summary.graph_ops, "op")
        reason = ops.note or "not measured"
        return f"captured {known}/- ops: {reason} · {graph_ops} in the graphs, each counted once"
    line = f"captured {known}/{whole(total)} ops ({percent(summary.pct_ops)})"
    if ops.total_time_us and ops.captured.time_us is not None:
        time = durations(ops.captured.time_us, ops.total_time_us)
        line += f", {time} op time ({percent(summary.pct_time)})"
    return f"{line} · {_certainty(ops)}"


def _certainty(ops: OpsRecord) -> str:
    """How far the captured line can be trusted."""
    if ops.status == "exact":
        words = "exact, the whole run observed"
        if any(record.count_spread for record in ops.missing):
            words += "; sampled: which line an op was on"
    else:
        words = f"sampled, {percent(ops.observed_pct)} of the time observed"
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
        f"device time: captured {durations(device.captured_us, device.kernel_us)} of kernel time "
        f"({percent(device.pct_captured)}) · sampled, {count(device.windows, 'window')}, "
        f"{percent(device.observed_pct)} of the calls observed"
    )
    # Measured on an H100: docs/gpu-and-traces.md.
    line += "; the process runs slower from the first window on, up to 15 %"
    return line if device.note is None else f"{line}; {device.note}"


def _missed_lines(report: Report, width: int) -> list[str]:
    """The eager ops that took most of the time, if they took any worth naming."""
    lines = []
    for record in report.ops.missing[:MAX_LINES]:
        share = report.ops.share_of_op_time(record)
        if share < WORTH_NAMING_PCT:
            break
        where = short_path(record.file, record.line)
        lines += wrap(
            f"missed {record.op} at {where}: {percent(share)} of op time, "
            f"{count(record.count, 'call', record.count_spread)}",
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
        if record.file is not None and (record.kind != GAVE_UP or not record.skipped)
    ]
    for record in breaks[:MAX_LINES]:
        what = "gave up" if record.kind == GAVE_UP else "graph break"
        where = short_path(record.file, record.line)
        inside = f" in {record.function}" if record.function else ""
        lines += wrap(f"{what} at {where}{inside}: {record.reason}", width, max_lines=2)
    if len(breaks) > MAX_LINES:
        lines.append(f"graph break: {len(breaks) - MAX_LINES} more")
    return lines


def _next_step(report: Report) -> str:
    steps = [step for step in next_change(report) if step.known != TRIAL]
    if steps:
        first, *others = steps
        where = "" if first.file is None else f"{short_path(first.file, first.line)}: "
        more = f"; INSTRUMENTED_TABLES=next has {len(others)} more" if others else ""
        return f"next: {where}{first.text}: {at_most(first)}{more}"
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
    said = remarks(report, name) + [f"next: {step}" for step in next_steps(report, name)]
    below = [line for part in said for line in wrap(part, width, break_words=True)]
    return "\n".join([text, *below])


def render_rows(table: Table, rows: Sequence[TableRow], width: int, max_rows: int) -> str:
    """The rows under the table's title; nothing where there are none."""
    if not rows:
        return ""
    first = rows[:max_rows]
    shown = [
        {key: cell_text(table, row, key) for key in row if key not in table.only_in_files}
        for row in first
    ]
    names = shown_columns(shown)
    columns = []
    for name in names:
        cells = [row.get(name, "") for row in shown]
        are_figures = all(is_figure(row.get(name)) for row in first)
        columns.append(Column(name, header_text(table, name), cells, are_figures))
    text = draw(columns, width, table.least)
    more = f"\n... {len(rows) - max_rows} more rows in the report" if len(rows) > max_rows else ""
    title = "\n".join(wrap(table.title, width))
    return f"{title}\n{text}{more}"


def shown_columns(rows: list[dict[str, str]]) -> list[str]:
    """The columns in which at least one row has something to say."""
    columns = dict.fromkeys(key for row in rows for key in row)
    return [column for column in columns if any(row.get(column) for row in rows)]


def cell_text(table: Table, row: TableRow, column: str) -> str:
    value = row[column]
    if value is None:
        return ""
    if isinstance(value, Place):
        return short_path(value.file, value.line) if column == "where" else value
    if isinstance(value, str):
        return value
    if column in table.with_units:
        return duration(value)
    if column.endswith("_gb"):
        return size(value * 1e9)
    if column == "seconds":
        return f"{value:,.2f}"
    for suffix, (_, digits) in COLUMNS.items():
        if column.endswith(suffix):
            return f"{value:,.{digits}f}"
    spread = row.get(f"{column}_spread")
    counts = isinstance(value, int) and not isinstance(value, bool) and column not in _NUMBERED
    number = whole(int(value)) if counts else str(value)
    return with_spread(number, spread if isinstance(spread, float) else None)


def header_text(table: Table, column: str) -> str:
    """``compile_s`` → ``compile (s)``; ``gb_per_s`` → ``GB/s``; no unit where cells have theirs."""
    if column == "gb_per_s":
        return "GB/s"
    column, has_units = column.removesuffix("_gb"), column in table.with_units
    for suffix, (unit, _) in COLUMNS.items():
        if column.endswith(suffix):
            name = column.removesuffix(suffix).replace("_", " ")
            return name if has_units else f"{name} ({unit})"
    return column.replace("_", " ")


def is_figure(value: Cell) -> bool:
    """A number, or the text of one."""
    if not isinstance(value, str):
        return True
    return value.replace(",", "").replace(".", "", 1).replace("e-", "", 1).isdigit()
