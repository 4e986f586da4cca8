"""Gaps in the report: exact sums on the main thread, from mark to mark; eager ops and lines."""

import itertools

from instrumented_backend.observe.native.structs import Seen, TimeRow
from instrumented_backend.observe.ops.cells import Cell, OnLine
from instrumented_backend.observe.ops.estimate import estimate
from instrumented_backend.observe.ops.gaps import MAX_GAPS, gap_records
from instrumented_backend.observe.ops.lines import Line
from instrumented_backend.observe.ops.observed import Kind, Mark, Observed, Part
from instrumented_backend.records import GapLineRecord, GapRecord

STEP = "Optimizer.step#AdamW.step"
FORWARD, BACKWARD = 1, 2  # of graph 0, by `region_key`
BEGINS, ENDS = 3, 2  # of the first event
MARKS = [
    Mark(FORWARD, None, False),
    Mark(BACKWARD, None, False),
    Mark(BACKWARD, STEP, False, begins=True),
    Mark(BACKWARD, STEP, False),
]


_edges = itertools.count(1)


def nothing() -> Part:
    return Part(Seen(), [])


def kind(
    mark: int,
    to: int,
    n: int,
    ns: int,
    cells: list[Cell] | None = None,
    others: tuple[int, int] = (0, 0),
) -> Kind:
    """Gaps that one window saw, all of them."""
    cells = cells or []
    op_ns = sum(cell.time_ns for cell in cells)
    seen = Part(Seen(n, ns, sum(cell.count for cell in cells), op_ns, 1), cells)
    none = nothing(), nothing()
    counts = (n, others[0]), (ns, others[1])
    return Kind(next(_edges), mark, to, 10, *counts, (seen, nothing()), none, nothing())


def gaps(*kinds: Kind, lines: list[Line] | None = None) -> list[GapRecord]:
    seen = Observed(
        *(MARKS, list(kinds), (nothing(), nothing()), {}, TimeRow(), lines or [], True, 10**9),
        events={BEGINS: STEP, ENDS: STEP},
    )
    return gap_records(seen, estimate(seen))


def test_from_mark_to_mark() -> None:
    # 10 gaps of 1,000 ns in all, 400 of them in ops; the optimizer's with 5,000, 4,000 in ops:
    # 3,600 in one, of which 2,700 were on line 31 and 900 on line 9; and 400 in another.
    lines = [Line("t.py", 31, "step"), Line("t.py", 9, "helper")]
    add = Cell("aten::add", 0, 0, 20, 400, {})
    mul = Cell("aten::mul_", 2, 0, 40, 3600, {0: OnLine(30.0, 2700.0), 1: OnLine(10.0, 900.0)})
    div = Cell("aten::div", 2, 1, 10, 400, {0: OnLine(10.0, 400.0)})
    step, loss = gaps(
        kind(0, BACKWARD, 10, 1000, [add]), kind(2, -ENDS, 10, 5000, [mul, div]), lines=lines
    )
    assert (step.graph, step.backward, step.event, step.inside) == (0, True, STEP, True)
    assert (step.to_graph, step.to_event) == (None, STEP)
    assert (step.count, step.time_us, step.eager_time_us, step.python_us) == (10, 5.0, 4.0, 1.0)
    assert step.lines == [
        GapLineRecord("t.py", 31, "step", "aten::mul_", 3.1),
        GapLineRecord("t.py", 9, "helper", "aten::mul_", 0.9),
    ]
    assert (loss.graph, loss.backward, loss.event, loss.inside) == (0, False, None, False)
    assert (loss.to_graph, loss.to_backward, loss.to_event) == (0, True, None)
    assert (loss.time_us, loss.eager_time_us) == (1.0, 0.4)


def test_positions_are_taken_together_and_other_threads_left_out() -> None:
    (gap,) = gaps(kind(1, FORWARD, 10, 1000), kind(1, FORWARD, 2, 4000, others=(5, 9000)))
    assert (gap.count, gap.time_us) == (12, 5.0)


def test_gaps_are_bounded() -> None:
    kept = gaps(*(kind(0, n, 1, n + 1) for n in range(MAX_GAPS + 9)))
    assert len(kept) == MAX_GAPS
    assert kept[0].time_us == (MAX_GAPS + 9) / 1e3  # the longest
