"""The live view's picture, as large as the terminal: lines of text, each within its width."""

from collections.abc import Iterable, Iterator

from rich.cells import cell_len
from rich.console import Group
from rich.text import Text

from instrumented_backend.compare.functions import base
from instrumented_backend.records.follow import DIED, ENDED, SILENT, UNREADABLE, FollowedReport
from instrumented_backend.records.live import LiveReport
from instrumented_backend.records.report import INTERRUPTED, RUNNING
from instrumented_backend.units import elapsed, seconds, whole_percent
from instrumented_backend.views.gpu import gpu_lines
from instrumented_backend.views.meanings import ledger_words
from instrumented_backend.views.top.events import BAD, WORK, age
from instrumented_backend.views.top.lines import (
    clock,
    figure,
    ledger_words_of,
    nothing_yet,
    processes,
    rate_words,
)
from instrumented_backend.views.top.names import guard, labels, recompiled, together
from instrumented_backend.views.top.watched import Watched, under_way, who
from instrumented_backend.views.words import count, in_line, short_path

ROOMY = 20  # lines, from which on the ledger has one for each row
MAX_COMPILING = 4
_STATES = {
    RUNNING: "green",
    ENDED: "dim",
    INTERRUPTED: "red",
    DIED: "bold red",
    SILENT: "yellow",
    UNREADABLE: "red",
}
_ROWS = {
    "captured": "green",
    "eager_ops": "cyan",
    "data": "blue",
    "compile": "yellow",
    "python": "magenta",
}
_KINDS = {WORK: "yellow", BAD: "red"}
_LEVELS = "▁▂▃▄▅▆▇█"
_PLAIN = str.maketrans(
    {"█": "#", "▁": "_", "▂": ".", "▃": ".", "▄": "-", "▅": "=", "▆": "*", "▇": "*"}
    | {"·": "-", "…": "~", "→": ">", "±": "~", "↑": "^", "↓": "v", "▸": ">"}
)
Lines = list[Text]


def picture(
    watched: Watched, width: int, height: int, chosen: int = 0, keys: bool = True, utf8: bool = True
) -> Group:
    """``chosen`` is the process whose details are shown; ``keys``: does anybody hear them?"""
    lines = _lines(watched, width, height, chosen, keys)[:height]
    for line in lines:
        if not utf8:
            # One character for another: what is styled stays where it is.
            line.plain = line.plain.translate(_PLAIN).encode("ascii", "replace").decode("ascii")
        line.no_wrap = True
        line.truncate(max(1, width), overflow="ellipsis" if utf8 else "crop")
    return Group(*lines)


def _lines(watched: Watched, width: int, height: int, chosen: int, keys: bool) -> Lines:
    foot = [_foot(len(watched.reports))] if keys and height > 4 else []
    room = height - len(foot)
    if not watched.reports:
        text = Text(in_line(nothing_yet(watched)))
        lines = [_title(watched, width), Text(), *_wrapped(text, width)]
        return [*_filled(lines, room), *foot]
    chosen = min(chosen, len(watched.reports) - 1)
    known = watched.reports[chosen]
    several = len(watched.reports) > 1
    lines = [_title(watched, width)]
    if several:
        lines.append(_overview(watched))
    lines += _compiling(watched)
    if several:
        rows = min(len(watched.reports), max(3, (room - len(lines)) // 2 - 1))
        lines += [Text(), *_table(watched, chosen, rows, width)]
    lines += [Text(), *_details(known, watched, width, room - len(lines))]
    left = room - len(lines)
    if left > 2:
        lines += [Text(), *_log(watched, left - 1)]
    return [*_filled(lines, room), *foot]


def _filled(lines: Lines, room: int) -> Lines:
    return lines[: max(room, 1)] + [Text()] * (room - len(lines))


def _wrapped(text: Text, width: int) -> Lines:
    from rich.console import Console

    return list(text.wrap(Console(width=max(2, width)), max(2, width)))


def _foot(processes: int) -> Text:
    return Text("↑ ↓ chooses a process · q quits" if processes > 1 else "q quits", "dim")


def _title(watched: Watched, width: int) -> Text:
    now = clock(watched.now_at)
    text = Text("instrumented-backend top", "bold")
    text.append(f" · {in_line(watched.name)}", "default")
    if watched.left_out:
        text.append(f" · {watched.left_out} of earlier runs left out", "dim")
    if watched.waiting and watched.reports:
        text.append(f" · reading {count(watched.waiting, 'more report')}", "dim")
    if watched.problem is not None and watched.reports:
        text.append(f" · {in_line(watched.problem)}", "red")
    text.truncate(max(1, width - len(now) - 1), overflow="ellipsis")
    text.append(" " * (width - cell_len(text.plain) - len(now)))
    text.append(now, "dim")
    return text


def _overview(watched: Watched) -> Text:
    text = Text(processes(watched))
    if rates := rate_words(watched.in_state(RUNNING)):
        text.append(f" · {rates}")
    return text


# --- What is being compiled ---------------------------------------------------------------------


def _compiling(watched: Watched) -> Lines:
    entries = watched.compiling()
    lines = []
    for each in entries[:MAX_COMPILING]:
        text = Text("compiling ", "bold yellow")
        text.append(f"for {elapsed(each.for_s)}, since {clock(each.since_at)}", "yellow")
        if len(watched.reports) > 1:
            text.append(f", {together(each.who)}")
        text.append(f": {in_line(each.what)}", "bold")
        lines.append(text)
        if each.why is not None:
            lines.append(Text(f"  again: {in_line(each.why)}"))
    if len(entries) > MAX_COMPILING:
        lines.append(Text(f"compiling {len(entries) - MAX_COMPILING} more", "yellow"))
    return lines


# --- Processes side by side ---------------------------------------------------------------------

_HEADER = ("state", "seen", "calls", "calls/s", "recompiles", "compiling", "in graphs", "now")
_RIGHT = range(2, 8)
_LEAST = (2, 7, 6, 3, 5, 8, 4)  # left out in this order where the terminal is narrow


def _table(watched: Watched, chosen: int, rows: int, width: int) -> Lines:
    names = labels(watched.reports)
    first = min(max(0, chosen - rows // 2), len(watched.reports) - rows)
    shown_ones = watched.reports[first : first + rows]
    cells = [_row(each, names[each].text, watched.now_s) for each in shown_ones]
    part = f"{first + 1}-{first + rows} of {len(watched.reports)}"
    header = (part if rows < len(watched.reports) else "", *_HEADER)
    widths = [max(map(cell_len, column)) for column in zip(header, *cells, strict=True)]
    columns = list(range(len(header)))
    for column in _LEAST:
        fixed = sum(widths[each] for each in columns if each != 8) + 2 * len(columns)
        if fixed + 8 <= width:
            break
        columns.remove(column)
    words = "  ".join(_padded(header[each], each, widths) for each in columns)
    lines = [Text(words.rstrip(), "dim")]
    for number, (each, row) in enumerate(zip(shown_ones, cells, strict=True)):
        text = Text()
        for column in columns:
            style = _STATES[each.state(watched.now_s)] if column == 1 else ""
            style = "yellow" if column == 8 else style
            is_last = column == columns[-1]
            text.append(
                row[column] if is_last else f"{_padded(row[column], column, widths)}  ", style
            )
        if first + number == chosen:
            text.stylize("reverse")
        lines.append(text)
    return lines


def _padded(cell: str, column: int, widths: list[int]) -> str:
    room = " " * (widths[column] - cell_len(cell))
    return room + cell if column in _RIGHT else cell + room


def _row(known: FollowedReport, name: str, now_s: float) -> tuple[str, ...]:
    state = known.state(now_s)
    report = known.report
    if report is None:
        return (in_line(name), state, "", "", "", "", "", "", in_line(known.problem or ""))
    rate = known.rate() if state == RUNNING else None
    doing = [f"{base(each.function)} {elapsed(for_s)}" for each, for_s in under_way(known, now_s)]
    if state in (DIED, INTERRUPTED, SILENT) and doing:
        doing = [f"was compiling {base(each.function)}" for each in report.compiling]
    if known.problem is not None:
        doing = ["its file cannot be read"]
    elif known.removed_s is not None:
        doing = ["its report was removed"]
    return (
        in_line(name),
        state,
        elapsed(known.seen_ago_s(now_s)),
        f"{report.summary.graph_calls:,}",
        "" if rate is None else figure(rate),
        f"{report.summary.recompiles:,}",
        _share(report, "compile"),
        _share(report, "captured"),
        in_line(", ".join(doing)),
    )


def _share(report: LiveReport, row: str) -> str:
    value, wall_s = report.ledger.seconds(row), report.ledger.wall_s
    return "" if value is None or not wall_s else whole_percent(100 * value / wall_s)


# --- One process --------------------------------------------------------------------------------


def _details(known: FollowedReport, watched: Watched, width: int, room: int) -> Lines:
    report = known.report
    if report is None:
        return _wrapped(Text(in_line(f"{known.path}: {known.problem}"), "red"), width)
    lines = [*_heads(known, report, watched), _counts(report), _speed(known, report, width)]
    if known.problem is not None:
        lines += _wrapped(Text(in_line(f"cannot be read now: {known.problem}"), "red"), width)
    rows = list(_ledger(report, width))
    if room >= ROOMY and rows:
        lines += [Text(), *rows]
    elif report.ledger.rows:
        lines.append(Text(ledger_words_of(known)))
    elif report.ledger.note:
        lines.append(Text(in_line(f"where the time went is unknown: {report.ledger.note}"), "dim"))
    lines += [Text(in_line(line)) for line in gpu_lines(report.gpu)]
    left = max(0, room - len(lines) - 2) // 2
    again = list(_recompiles(report, left)) if left >= 1 else []
    return [*lines, Text(), *again] if again else lines


def _heads(known: FollowedReport, report: LiveReport, watched: Watched) -> Iterator[Text]:
    run, state = report.run, known.state(watched.now_s)
    text = Text()
    if len(watched.reports) > 1:
        text.append(f"rank {run.rank}, ", "bold")
    text.append(f"pid {run.pid}: ", "bold")
    text.append(state, _STATES[state])
    ago_s = known.seen_ago_s(watched.now_s)
    if (age_s := age(report)) is not None:
        going_on = state == RUNNING
        age_s += ago_s if going_on else 0.0
        text.append(f" {'for' if going_on else 'after'} {elapsed(age_s)}")
    text.append(f" · figures of {elapsed(ago_s)} ago")
    text.append(f" · torch {in_line(run.torch.partition('+')[0])}, {in_line(run.device)}")
    yield text
    if run.command:
        yield Text(in_line(run.command), "dim")


def _counts(report: LiveReport) -> Text:
    summary = report.summary
    calls = "1 call" if summary.graph_calls == 1 else f"{summary.graph_calls:,} calls"
    return Text(
        f"{count(summary.graphs, 'graph')}, {calls} "
        f"(+{summary.backward_calls:,} backward), {count(summary.graph_breaks, 'graph break')}, "
        f"{count(summary.recompiles, 'recompile')}"
    )


def _speed(known: FollowedReport, report: LiveReport, width: int) -> Text:
    """``graph calls/s ▅▅▆▁▆ 41.2 · 39.8 over the run``"""
    text = Text("graph calls/s ")
    latest = known.latest()
    after_startup_s = (report.ledger.wall_s or 0.0) - (report.ledger.seconds("startup") or 0.0)
    words = [f"{figure(latest[0])} in the last {elapsed(latest[1])}"] if latest else []
    if after_startup_s > 0:
        words.append(f"{figure(report.summary.graph_calls / after_startup_s)} since startup")
    said = " · ".join(words)
    columns = min(60, width - cell_len(text.plain) - cell_len(said) - 1)
    if columns >= 5 and (rates := known.rates(columns)):
        text.append(_sparks(rates), "green")
        text.append(" ")
    text.append(said)
    return text


def _sparks(rates: list[float]) -> str:
    """A blank where nothing was called."""
    top = max(rates)
    return "".join(
        _LEVELS[min(len(_LEVELS) - 1, int(len(_LEVELS) * rate / top))] if rate > 0 else " "
        for rate in rates
    )


def _ledger(report: LiveReport, width: int) -> Iterator[Text]:
    """A bar for each row of the main thread, the largest first."""
    ledger = report.ledger
    rows = [
        (share, row)
        for row in ledger.rows
        if row.threads == "main" and (share := ledger.share_pct(row)) is not None
    ]
    names = [ledger_words(row.row) for _, row in rows]
    label = max(map(len, names), default=0)
    for share, row in sorted(rows, key=lambda entry: entry[0], reverse=True):
        figures = f" {whole_percent(share):>5} {seconds(row.seconds or 0.0):>9}"
        room = max(1, width - label - len(figures) - 2)
        bar = round(room * min(100.0, max(0.0, share)) / 100)
        text = Text(f"{ledger_words(row.row):{label}} ")
        text.append("█" * bar, _ROWS.get(row.row, "dim"))
        text.append(" " * (room - bar) + figures)
        yield text


def _recompiles(report: LiveReport, room: int) -> Iterator[Text]:
    """The functions that took longest, a line each; below each its guards where there is room."""
    records = sorted(report.recompiles, key=lambda record: record.compile_s, reverse=True)
    with_guards = room >= 1 + 2 * len(records)
    for record in records[: room if with_guards else max(1, room)]:
        text = Text("recompiled ", "yellow")
        text.append(in_line(recompiled(report, record)), "bold")
        text.append(f" {count(record.count, 'time')}, {seconds(record.compile_s)}")
        if record.limit_hits:
            text.append(" · RECOMPILE LIMIT REACHED", "bold red")
        guards = [guard(each) for each in record.guards] or [record.reason or "reason unknown"]
        if not with_guards:
            text.append(f": {in_line(guards[0])}")
        yield text
        if with_guards:
            used = record.guards[0] if record.guards else None
            where = f", used at {short_path(used.file, used.line)}" if used and used.file else ""
            yield Text(f"  {in_line(guards[0])}{in_line(where)}")


def _log(watched: Watched, room: int) -> Iterable[Text]:
    """What happened last, the latest at the end."""
    for event in list(watched.log)[-room:]:
        text = Text(f"{clock(event.at)} ", "dim")
        if whose := who(event, len(watched.reports)):
            text.append(f"{whose}: ", "bold")
        text.append(in_line(event.words), _KINDS.get(event.kind, ""))
        yield text
