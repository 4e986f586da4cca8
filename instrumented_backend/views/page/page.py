"""The report as one HTML file: no request to anywhere, opened from disk."""

import base64
import errno
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import resources
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TypeVar

from instrumented_backend.records import (
    GPU_BOUND,
    LAUNCH_BOUND,
    STREAM_BOUND,
    BreakRecord,
    GraphRecord,
    KernelRecord,
    NextStep,
    RecompileRecord,
    Report,
)
from instrumented_backend.records.escapes import shown
from instrumented_backend.records.fields import field_values
from instrumented_backend.units import duration, percent, seconds, size, whole
from instrumented_backend.views.advice import remarks
from instrumented_backend.views.names import Names
from instrumented_backend.views.next_steps import TRIAL, TRIAL_TELLS, at_most, next_steps
from instrumented_backend.views.not_compiled import not_compiled
from instrumented_backend.views.output import Place, TableRow
from instrumented_backend.views.page.annotated import ShownFile, shown_files
from instrumented_backend.views.page.charts import Bar, device_bar, gpu_bars, ledger_bar
from instrumented_backend.views.page.tables import ShownTable, shown_table
from instrumented_backend.views.page.texts import KernelTexts, Reading
from instrumented_backend.views.page.timeline import Timeline, phase_totals, timeline
from instrumented_backend.views.words import beginning, count, function, short_path

if TYPE_CHECKING:
    from jinja2 import Environment

MAX_REPORTS = 16  # drawn in full
MAX_KERNELS = 10_000  # of one report
MAX_PAGE = 200_000_000  # characters: what is named in many places is drawn in all of them

Record = TypeVar("Record")
_TOLD_IN = {
    "break": "breaks",
    "recompile": "recompiles",
    "optimizer": "missing",
    "loss": "missing",
    "eager": "missing",
    "cold-caches": "caches",
    "not-compiled": "graphs",
}
TOLD_APART = ("graphs", "compiled", "missing", "caches", "compile", "counters")


class PageTooLarge(OSError):
    """No browser would open it."""

    def __init__(self) -> None:
        super().__init__(errno.EFBIG, f"it would have more than {MAX_PAGE // 1_000_000} MB")


def render_page(reports: Sequence[Report], *, source: bool = True, frame: bool = False) -> str:
    """One page of one or several reports, of which the first is shown first.

    Without ``source``, no text of the program or of generated code is in it. ``frame``: it is
    shown inside another page. Raises `PageTooLarge`.
    """
    # In a frame, kernels' sources would be most of it, and saved with the notebook.
    texts = source and not frame
    reading = Reading()
    drawn = [
        _drawn(report, number, reading if source else None, texts)
        for number, report in enumerate(reports[:MAX_REPORTS])
    ]
    script = _text("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    pieces = (
        _environment()
        .get_template("page.html")
        .generate(
            drawn=drawn,
            left_out=max(0, len(reports) - MAX_REPORTS),
            ranks=_ranks(reports) if len(reports) > 1 else [],
            style=_text("page.css"),
            script=script,
            script_digest=digest,
            frame=frame,
            title=_title(reports[0]),
        )
    )
    return "".join(_bounded(pieces))


def _bounded(pieces: Iterable[str]) -> Iterator[str]:
    left = MAX_PAGE
    for piece in pieces:
        left -= len(piece)
        if left < 0:
            raise PageTooLarge
        yield piece


def to_bytes(page: str) -> bytes:
    """UTF-8: what could not be written in it has been escaped where it was drawn."""
    return page.encode("utf-8")


@cache
def _text(name: str) -> str:
    folder = resources.files("instrumented_backend.views.page") / "templates"
    return (folder / name).read_text(encoding="utf-8")


@cache
def _environment() -> "Environment":
    from jinja2 import DictLoader, Environment, StrictUndefined

    names = ("page.html", "report.html", "parts.html")
    environment = Environment(
        loader=DictLoader({name: _text(name) for name in names}),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalized,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        duration=duration,
        seconds=seconds,
        percent=percent,
        size=size,
        where=_where,
        whole=whole,
        moment=_moment,
    )
    environment.globals.update(count=count, function=function)
    return environment


def _finalized(value: Any) -> Any:
    """Escape text of others: it may hold what reverses a line, or what no browser can read."""
    if value is None:
        return ""
    return shown_text(beginning(value)) if type(value) is str else value


def shown_text(text: str) -> str:
    """Lines stay lines."""
    return "\n".join(map(shown, text.split("\n")))


def _where(place: tuple[str | None, int | None]) -> str:
    return short_path(*place)


def _moment(text: str) -> str:
    """``"2026-11-24 23:36 UTC"``, of what the report has in ISO 8601."""
    return f"{text[:10]} {text[11:16]} UTC" if text.endswith("+00:00") else text


def _title(report: Report) -> str:
    return report.run.command or f"process {report.run.pid}"


# --- One report ---------------------------------------------------------------------------------


@dataclass
class ShownKernel:
    number: int
    record: KernelRecord
    lines: list[tuple[str, str, str | None]]  # "model.py:12", the whole path, its anchor
    text: str | None
    figures: dict[str, str]


@dataclass
class ShownStep:
    """What to do: where, with the line's anchor; ``section`` is the part that tells more."""

    words: str
    place: str | None
    anchor: str | None
    section: str
    bound: str
    trial: bool  # only a trial tells how much of the bound is won


@dataclass
class Drawn:
    """What the template needs of one report; ``p`` is in front of its anchors."""

    p: str
    report: Report
    heading: str
    verdict: str
    loud: list[str]
    steps: list[ShownStep]
    bars: list[Bar]
    files: list[ShownFile]
    timeline: Timeline
    phases: list[tuple[str, str, str]]
    tables: dict[str, ShownTable]
    remarks: dict[str, list[str]]
    kernels: list[ShownKernel]
    names: Names
    anchors: dict[tuple[str | None, int | None], str] = field(default_factory=dict)

    def anchor(self, file: str | None, line: int | None) -> str | None:
        """Of a line that is shown."""
        return self.anchors.get((file, line))

    def broken(self, number: int) -> BreakRecord | None:
        """None where a line names one that is not in the report."""
        return _at(self.report.breaks, number)

    def again(self, number: int) -> RecompileRecord | None:
        return _at(self.report.recompiles, number)

    def kernel_name(self, number: int) -> str:
        kernel = _at(self.report.kernels, number)
        return f"kernel {number}" if kernel is None else kernel.kernel_name

    def graph_name(self, graph: int) -> str:
        record = self._graphs.get(graph)
        name = self.names.function(record.compiled, record.function) if record else None
        return f"graph {graph} ({function(name)})" if name else f"graph {graph}"

    @cached_property
    def _graphs(self) -> dict[int | None, GraphRecord]:
        return {record.graph: record for record in reversed(self.report.graphs)}

    @property
    def kernels_in_order(self) -> list[ShownKernel]:
        """The longest first, where that is known."""
        return sorted(self.kernels, key=lambda each: -(each.record.device_time_total_us or 0.0))

    @property
    def timed(self) -> bool:
        return any(each.record.device_time_total_us is not None for each in self.kernels)

    @property
    def has_peaks(self) -> bool:
        return any(each.record.peak_pct is not None for each in self.kernels)

    @property
    def captured_pct(self) -> str:
        return percent(self.report.summary.pct_ops)


def _at(records: Sequence[Record], number: int) -> Record | None:
    return records[number] if 0 <= number < len(records) else None


def _drawn(report: Report, number: int, reading: Reading | None, kernels: bool) -> Drawn:
    prefix = f"r{number}-"
    files = shown_files(report, prefix, reading)
    anchors: dict[tuple[str | None, int | None], str] = {
        (file.path, line.number): f"{file.anchor}-{line.number}"
        for file in files
        for line in file.lines
        if line.record is not None or line.is_target
    }

    first_kernels: dict[int | None, int] = {}
    for at, kernel in enumerate(report.kernels):
        first_kernels.setdefault(kernel.graph, at)

    def link(table: str, row: TableRow, column: str) -> str | None:
        value = row.get(column or "graph")
        if table == "graphs" and column == "kernels":
            graph = row["graph"]
            first = first_kernels.get(graph) if isinstance(graph, int) else None
            return None if first is None else f"{prefix}k{first}"
        if column == ("" if table == "graphs" else "graph") and isinstance(value, int):
            return f"{prefix}g{value}"
        return anchors.get((value.file, value.line)) if isinstance(value, Place) else None

    tables = {
        name: table for name in TOLD_APART if (table := shown_table(report, name, link)) is not None
    }
    texts = KernelTexts(reading) if reading and kernels else None
    bars = [ledger_bar(report.ledger), *gpu_bars(report.gpu), device_bar(report.ops.device)]
    return Drawn(
        p=prefix,
        report=report,
        heading=_heading(report),
        verdict=verdict(report),
        loud=not_compiled(report),
        steps=_steps(report, anchors),
        bars=[bar for bar in bars if bar is not None],
        files=files,
        timeline=timeline(report),
        phases=phase_totals(report.compile.phases),
        tables=tables,
        remarks={name: remarks(report, name) for name in (*TOLD_APART, "ledger")},
        kernels=[
            _kernel(at, kernel, anchors, texts)
            for at, kernel in enumerate(report.kernels[:MAX_KERNELS])
        ],
        names=Names(report),
        anchors=anchors,
    )


def _kernel(
    number: int,
    record: KernelRecord,
    anchors: dict[tuple[str | None, int | None], str],
    texts: KernelTexts | None,
) -> ShownKernel:
    lines = []
    for place in record.places:
        whole = short_path(*place)
        lines.append((PurePath(whole).name, whole, anchors.get(place)))
    figures = {
        name: _words(value)
        for name, value in field_values(record).items()
        if value not in (None, [], {})
        and name not in ("source_lines", "op_lines", "notes", "note_codes", "kernel_name")
    }
    if texts is None:  # they may be of a folder that is nobody's business
        for name in ("path", "kernel_path"):
            figures.pop(name, None)
    return ShownKernel(number, record, lines, texts.of(record) if texts else None, figures)


def _words(value: object) -> str:
    if isinstance(value, dict):
        parts = ((name, _words(item), isinstance(item, list)) for name, item in value.items())
        return ", ".join(
            f"{name} [{words}]" if many else f"{name} {words}" for name, words, many in parts
        )
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return whole(value) if type(value) is int else str(value)


def _heading(report: Report) -> str:
    run = report.run
    worker = f", {run.worker}" if run.worker else ""
    return f"rank {run.rank}, process {run.pid}{worker}"


def verdict(report: Report) -> str:
    """The run in a sentence; a figure and its unit stay on one line."""
    return (
        _verdict(report).replace(" %", "\N{NO-BREAK SPACE}%").replace(" s ", "\N{NO-BREAK SPACE}s ")
    )


def _verdict(report: Report) -> str:
    ledger, summary = report.ledger, report.summary
    graphs = f"{count(summary.graphs, 'graph')}, called {count(summary.graph_calls, 'time')}"
    captured_s = ledger.seconds("captured")
    if captured_s is None or not ledger.wall_s:
        return f"{graphs[:1].upper()}{graphs[1:]}; where the time went is not known."
    parts = [
        (spent, words)
        for row, words in (
            ("eager_ops", "eager ops"),
            ("compile", "compiling"),
            ("python", "Python"),
            ("data", "data loading"),
            ("startup", "start-up"),
        )
        if (spent := ledger.seconds(row))
    ]
    rest = ""
    if parts:
        spent, words = max(parts)
        rest = f"; {words} took most of the rest ({percent(100 * spent / ledger.wall_s)})"
    return (
        f"{percent(100 * captured_s / ledger.wall_s)} of {seconds(ledger.wall_s)} was spent in "
        f"compiled code ({graphs}){rest}.{_gpu_verdict(report)}"
    )


def _gpu_verdict(report: Report) -> str:
    """Of all GPUs at once, where they agree."""
    verdicts = {row.verdict for row in report.gpu.gpus}
    if verdicts == {LAUNCH_BOUND}:
        return " The GPU waits for the host: launch-bound."
    if verdicts == {GPU_BOUND}:
        return " The host waits for the GPU: GPU-bound."
    if verdicts == {STREAM_BOUND}:
        return " The GPU waits for copies or collectives on other streams."
    return ""


def _steps(report: Report, anchors: dict[tuple[str | None, int | None], str]) -> list[ShownStep]:
    """What to do, from what costs most on."""
    return [_step(step, anchors) for step in next_steps(report)]


def _step(step: NextStep, anchors: dict[tuple[str | None, int | None], str]) -> ShownStep:
    place = anchor = None
    if step.file is not None:
        place, anchor = short_path(step.file, step.line), anchors.get((step.file, step.line))
    trial = step.known == TRIAL
    words = function(step.text.removeprefix(TRIAL_TELLS))
    section = _TOLD_IN.get(step.code, "ledger")
    return ShownStep(words, place, anchor, section, at_most(step), trial)


# --- Several ------------------------------------------------------------------------------------


@dataclass
class Compared:
    """One figure of all the ranks; ``differs`` where they don't agree."""

    name: str
    values: list[str]
    differs: bool


def _ranks(reports: Sequence[Report]) -> list[Compared]:
    found = []
    for name, values in (
        ("graphs", [report.summary.graphs for report in reports]),
        ("graph calls", [report.summary.graph_calls for report in reports]),
        ("backward calls", [report.summary.backward_calls for report in reports]),
        ("graph breaks", [report.summary.graph_breaks for report in reports]),
        ("recompiles", [report.summary.recompiles for report in reports]),
        ("captured ops", [report.summary.captured_ops for report in reports]),
        ("total ops", [report.summary.total_ops for report in reports]),
        ("graphs from the cache", [report.caches.graphs.hit for report in reports]),
    ):
        texts = ["-" if value is None else whole(value) for value in values]
        found.append(Compared(name, texts, len(set(texts)) > 1))
    for name, took in (
        ("compiling (s)", [report.compile.total_s for report in reports]),
        ("wall time (s)", [report.ledger.wall_s or report.run.wall_s for report in reports]),
    ):
        texts = ["-" if value is None else f"{value:.2f}" for value in took]
        known = [value for value in took if value]
        differs = bool(known) and max(known) > 1.1 * min(known)
        found.append(Compared(name, texts, differs))
    return found
