"""Compilations: when in the run each one was, inside which other, and what its time went into."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from instrumented_backend.records import CompileRecord, GraphRecord, Report
from instrumented_backend.records.compilation import longest_first
from instrumented_backend.units import seconds
from instrumented_backend.views.page.charts import WIDTH, Bar, Part, bar
from instrumented_backend.views.words import function, phase

MAX_COMPILATIONS = 60
MAX_ROWS = 6  # compilations inside each other, or on several threads at once; the rest share one
MAX_PHASES = 100  # Inductor has a dozen
_SAME_S = 1e-3  # an inner one's clock is read after the outer one's
_NARROWEST = 1.5  # in the SVG's units: what is drawn can be pointed at


@dataclass
class Timeline:
    """Rows of marks: a compilation is below the one that it is inside of."""

    rows: list[list[Part]]
    lanes: list[Bar]  # each one's phases
    end: str  # of the run
    left_out: int

    @property
    def text(self) -> str:
        return ", ".join(f"{part.label} {part.said}" for row in self.rows for part in row)


@dataclass
class _Placed:
    record: CompileRecord
    start_s: float | None  # of the run; None in a report of before it was kept
    row: int
    inside: CompileRecord | None
    cached: bool

    @property
    def label(self) -> str:
        record = self.record
        words = [f"{record.compile_id} {record.direction}"]
        words += [] if record.outcome == "compiled" else [record.outcome]
        words += [f"inside {self.inside.compile_id}"] if self.inside else []
        words += ["from a cache"] if self.cached else []
        return f"{', '.join(words)} · {function(record.function or '?')}"


def timeline(report: Report) -> Timeline:
    """Of many compilations, the longest."""
    timed = [record for record in report.compile.compilations if record.total_s]
    longest = sorted(timed, key=lambda record: -(record.total_s or 0.0))[:MAX_COMPILATIONS]
    # As in the ledger: from the process's start on, where that is known.
    wall_s = report.ledger.wall_s or report.run.wall_s
    placed = list(_placed(longest, report.run.seen_at, wall_s, report.graphs))
    most_s = max((record.total_s or 0.0 for record in longest), default=0.0)
    return Timeline(
        rows=_rows(placed, wall_s),
        lanes=[_lane(one, most_s) for one in placed],
        end=seconds(wall_s or 0.0),
        left_out=len(timed) - len(longest),
    )


def phase_totals(phases: dict[str, float]) -> list[tuple[str, str, str]]:
    """For the legend: kind, words and seconds, the longest first."""
    return [
        (name.removesuffix("_s"), phase(name), seconds(took))
        for name, took in longest_first(phases)[:MAX_PHASES]
    ]


def _placed(
    records: Sequence[CompileRecord],
    seen_at: float | None,
    wall_s: float | None,
    graphs: Sequence[GraphRecord],
) -> Iterator[_Placed]:
    """In the order in which they began."""
    began_at = None if seen_at is None or wall_s is None else seen_at - wall_s
    cached = {graph.graph for graph in graphs if graph.cache == "hit"}
    under_way: list[tuple[float, _Placed]] = []  # with their ends
    free_at: list[float] = []  # by row
    for record in sorted(records, key=lambda one: (one.started_at or 0.0, -(one.total_s or 0.0))):
        is_cached = bool(record.graphs) and cached.issuperset(record.graphs)
        start = record.started_at
        if start is None or began_at is None:
            yield _Placed(record, None, 0, None, is_cached)
            continue
        end = start + (record.total_s or 0.0)
        under_way = [(until, one) for until, one in under_way if until > start]
        around = [one for until, one in under_way if end <= until + _SAME_S]
        row = around[-1].row + 1 if around else 0
        while row < len(free_at) and free_at[row] > start:
            row += 1
        free_at += [0.0] * (row + 1 - len(free_at))
        free_at[row] = end
        inside = around[-1].record if around else None
        placed = _Placed(record, start - began_at, row, inside, is_cached)
        under_way.append((end, placed))
        yield placed


def _rows(placed: Sequence[_Placed], wall_s: float | None) -> list[list[Part]]:
    """Empty where it is not known when."""
    rows: list[list[Part]] = []
    for one in placed:
        if one.start_s is None or not wall_s:
            continue
        row = min(one.row, MAX_ROWS - 1)
        rows += [[] for _ in range(row + 1 - len(rows))]
        took_s = one.record.total_s or 0.0
        width = min(max(WIDTH * took_s / wall_s, _NARROWEST), WIDTH)
        x = min(max(WIDTH * one.start_s / wall_s, 0.0), WIDTH - width)
        said = f"{seconds(took_s)}, at {seconds(max(one.start_s, 0.0))}"
        kind = "captured" if one.cached else "compile"
        rows[row].append(Part(kind, one.label, said, round(x, 2), round(width, 2), took_s))
    return rows


def _lane(one: _Placed, most_s: float) -> Bar:
    record = one.record
    values = [
        (name.removesuffix("_s"), phase(name), seconds(took), took)
        for name, took in itertools.islice(record.phases_s.items(), MAX_PHASES)
        if took
    ]
    lane = bar(one.label, values, most_s, seconds(record.total_s or 0.0))
    graph = next((graph for graph in record.graphs if graph is not None), None)
    lane.link = None if graph is None else f"g{graph}"
    return lane
