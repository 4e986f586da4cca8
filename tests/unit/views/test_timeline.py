"""When compilations were, and inside which others, as the page draws it."""

import dataclasses
from pathlib import Path

import pytest
from page_report import page_report

from instrumented_backend.records import CompileRecord, Report
from instrumented_backend.views.page.page import render_page
from instrumented_backend.views.page.timeline import MAX_COMPILATIONS, MAX_ROWS, Timeline, timeline

BEGAN_AT, WALL_S = 1_000_000.0, 100.0


def compilation(compile_id: str, start_s: float, took_s: float, graph: int = 0) -> CompileRecord:
    made = CompileRecord(
        compile_id, "forward", "f", "m.py", 1, "compiled", [graph], {"dynamo_s": took_s}, took_s
    )
    made.started_at = BEGAN_AT + start_s
    return made


@pytest.fixture
def report(tmp_path: Path) -> Report:
    """A run of 100 s: a tenth of a percent is one of the SVG's units."""
    made = page_report(tmp_path)
    made.run.wall_s, made.run.seen_at = WALL_S, BEGAN_AT + WALL_S
    made.ledger.wall_s = WALL_S
    made.graphs = [dataclasses.replace(made.graphs[0], graph=0, cache="miss")]
    made.graphs.append(dataclasses.replace(made.graphs[0], graph=1, cache="hit"))
    return made


def places(drawn: Timeline) -> list[list[tuple[str, float, float]]]:
    return [[(part.label.split()[0], part.x, part.width) for part in row] for row in drawn.rows]


def test_each_is_where_it_was(report: Report) -> None:
    """One inside another is below it; one that only begins during another, too."""
    report.compile.compilations = [
        compilation("0/0", 10, 20),
        compilation("1/0", 12, 5),  # inside the first
        compilation("2/0", 13, 2),  # inside both
        compilation("3/0", 18, 4),  # inside the first, after the second
        compilation("4/0", 25, 10),  # on another thread: it ends later than the first
        compilation("5/0", 50, 10, graph=1),
    ]
    drawn = timeline(report)
    assert places(drawn) == [
        [("0/0", 100, 200), ("5/0", 500, 100)],
        [("1/0", 120, 50), ("3/0", 180, 40), ("4/0", 250, 100)],
        [("2/0", 130, 20)],
    ]
    labels = [lane.label for lane in drawn.lanes]
    assert labels == [
        "0/0 forward · f",
        "1/0 forward, inside 0/0 · f",
        "2/0 forward, inside 1/0 · f",
        "3/0 forward, inside 0/0 · f",
        "4/0 forward · f",
        "5/0 forward, from a cache · f",
    ]
    assert [part.kind for part in drawn.rows[0]] == ["compile", "captured"]
    assert drawn.rows[0][0].said == "20.0 s, at 10.0 s"


def test_two_are_never_drawn_over_each_other(report: Report) -> None:
    """The third begins in a row that the second has left, and is inside the first."""
    report.compile.compilations = [
        compilation("0/0", 0, 50),
        compilation("1/0", 1, 2),
        compilation("2/0", 2, 20),  # overlaps the one before
        compilation("3/0", 10, 1),
    ]
    for row in timeline(report).rows:
        ends = [part.x + part.width for part in row]
        assert all(end <= after.x for end, after in zip(ends, row[1:], strict=False))


def test_what_is_too_short_to_see_is_wide_enough_to_point_at(report: Report) -> None:
    report.compile.compilations = [compilation("0/0", 99.9999, 0.0001)]
    ((_, x, width),) = places(timeline(report))[0]
    assert width > 0.001 * WALL_S and x + width == 1000


def test_many(report: Report) -> None:
    """The longest, in the order in which they began; rows have an end as well."""
    shorter = [compilation(f"{n}/0", 0.1 * n, 0.5) for n in range(40)]
    longer = [compilation(f"{n}/0", 50 - 0.5 * n, 10 + n) for n in range(40, 40 + MAX_COMPILATIONS)]
    report.compile.compilations = shorter + longer
    drawn = timeline(report)
    assert (len(drawn.lanes), drawn.left_out) == (MAX_COMPILATIONS, len(shorter))
    assert drawn.lanes[0].label.startswith(f"{39 + MAX_COMPILATIONS}/0")
    assert len(drawn.rows) == MAX_ROWS
    assert "40 shorter ones not drawn" in render_page([report])


def test_a_report_that_does_not_know_when(report: Report) -> None:
    """Of before that was kept, or of a run whose last moment is unknown."""
    report.compile.compilations = [compilation("0/0", 1, 1)]
    report.run.seen_at = None
    assert timeline(report).rows == [] and len(timeline(report).lanes) == 1
    assert "When in the run" not in render_page([report])


def test_it_is_as_long_as_the_ledger(report: Report) -> None:
    """Which begins with the process, a while before the first torch.compile."""
    report.run.wall_s, report.ledger.wall_s = WALL_S, 2 * WALL_S
    report.compile.compilations = [compilation("0/0", 10, 20)]
    # Seen at 100 s of the run, which is 200 s of the process: it began at 110 of 200 s.
    drawn = timeline(report)
    assert places(drawn) == [[("0/0", 550, 100)]]
    assert drawn.end == "3.33 min"


def test_it_is_on_the_page(report: Report) -> None:
    report.compile.compilations = [compilation("0/0", 10, 20), compilation("1/0", 12, 5)]
    page = render_page([report])
    assert "When in the run: 0 to 100.0 s" in page
    assert "<title>1/0 forward, inside 0/0 · f: 5.00 s, at 12.0 s</title>" in page
