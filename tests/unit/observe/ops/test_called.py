"""Ops that a program calls from Python: numbers of all of the run, and what windows saw beside."""

import pytest
from seen_gaps import S, kind, observed, part

from instrumented_backend.observe.native.structs import CallerRow, FunctionRow
from instrumented_backend.observe.ops.called import Called, Number, called
from instrumented_backend.observe.ops.cells import Cell, OnLine
from instrumented_backend.observe.ops.estimate import Estimate, estimate
from instrumented_backend.observe.ops.lines import Line
from instrumented_backend.observe.ops.observed import Kind, Part
from instrumented_backend.observe.ops.spread import SPREAD

MS = S // 1000
LINES = [Line("a.py", 1, "f"), Line("a.py", 2, "f")]


def function(
    number: int, name: bytes, calls: int, seen: int, *ops: bytes, differ: bool = False
) -> FunctionRow:
    row = FunctionRow(number, calls, seen, differ, name)
    for i, op in enumerate(ops):
        row.ops[i] = op
    return row


MUL = function(1, b"__mul__", 700, 30, b"aten::mul")
TIMES = function(2, b"mul", 50, 10, b"aten::mul")
BOTH = function(3, b"addmul", 20, 5, b"aten::mul", b"aten::add", b"aten::mul")


def callers(**functions: list[int]) -> list[CallerRow]:
    return [
        CallerRow(b"aten::" + op.encode(), number)
        for op, numbers in functions.items()
        for number in numbers
    ]


def test_as_many_ops_as_there_were_calls_of_all_that_run_them() -> None:
    found = called([MUL, TIMES, BOTH], callers(mul=[1, 2, 3], add=[3])).numbers
    assert found["aten::mul"].ops == 700 + 50 + 2 * 20
    assert found["aten::add"] == Number(20, 20 / 7)


@pytest.mark.parametrize(
    "other",
    [
        function(2, b"multiply", 50, 10, b"aten::mul", differ=True),
        function(2, b"mul_", 50, 0),  # that no window saw: it may be the same op
    ],
)
def test_what_calls_do_not_tell(other: FunctionRow) -> None:
    by = [1, 2] if other.seen else [1]
    assert not called([MUL, other], callers(mul=by)).numbers
    assert called([MUL], callers(mul=[1])).numbers


def test_an_op_that_no_function_called() -> None:
    assert not called([MUL], callers(mul=[1, -1])).numbers


def test_functions_of_which_no_window_saw_a_call() -> None:
    found = called([MUL, function(2, b"sort", 50, 0)], callers(mul=[1]))
    assert found.unknown == 50 and found.numbers["aten::mul"].ops == 700


# --- What windows stand for -----------------------------------------------------------------------


def cell(name: str, count: float, each_ns: int, line: int = 0, slot: int = 0) -> Cell:
    ns = count * each_ns
    return Cell(name, 0, slot, count, ns, {line: OnLine(count, ns)})


def slices(*cells: Cell) -> Part:
    """Of ten windows of 10 ms each."""
    ops, ns = sum(each.count for each in cells) / 10, sum(each.time_ns for each in cells) / 10
    return part(*[(0.01, 10 * MS, ops, ns)] * 10, cells=list(cells))


def with_numbers(gap: Kind, unknown: int = 0, **numbers: float) -> Estimate:
    seen = observed(gap, lines=LINES)
    known = {f"aten::{op}": Number(ops, ops / 1e6) for op, ops in numbers.items()}
    seen.called = Called(known, unknown)
    return estimate(seen)


def long_gap(*cells: Cell) -> Kind:
    """Of 10 s, of which windows saw a hundredth."""
    return kind(1, 10 * S, octave=33, slices=slices(*cells))


GAP = long_gap(cell("aten::mul", 100, 50_000), cell("aten::add", 200, 20_000, line=1, slot=1))


def test_the_number_is_that_of_the_calls() -> None:
    """Windows have met too few of the one, and each takes as long as those that they met."""
    found = with_numbers(GAP, mul=30_000)
    assert found.by_name["aten::mul"].ops == pytest.approx(30_000)
    assert found.by_name["aten::mul"].ns == pytest.approx(30_000 * 50_000)
    assert found.by_name["aten::mul"].ops_error < 1
    assert found.by_name["aten::add"].ops == pytest.approx(20_000)
    assert found.eager.ops == pytest.approx(50_000)
    assert found.eager.ns == pytest.approx(1.9 * S)
    assert found.main_ns.ns == pytest.approx(1.9 * S)


def test_on_other_lines_the_number_is_as_uncertain_as_before() -> None:
    cells = [cell("aten::mul", 100, 50_000), cell("aten::add", 200, 20_000, line=1, slot=1)]
    varied = part((0.01, 10 * MS, 50, MS), (0.01, 10 * MS, 250, 2 * MS), cells=cells)
    gap = kind(1, 10 * S, octave=33, slices=varied)
    before, found = with_numbers(gap), with_numbers(gap, mul=30_000)
    assert found.by_name["aten::add"].ops_error == before.by_name["aten::add"].ops_error > 0
    assert 0 < found.eager.ops_error < before.eager.ops_error


def three_in_a_row() -> Part:
    ops = ["mul", "sum", "to"]
    cells = [cell(f"aten::{op}", 100, 20_000, slot=i) for i, op in enumerate(ops)]
    return part((0.01, 10 * MS, 50, MS), (0.01, 10 * MS, 250, 2 * MS), cells=cells)


def test_of_others_on_the_same_line_there_are_as_many_times_more() -> None:
    """Three in a row: what windows have of a line's ops they have of all of it."""
    gap = kind(1, 10 * S, octave=33, slices=three_in_a_row())
    before, found = with_numbers(gap), with_numbers(gap, mul=60_000, sum=60_000)
    assert found.by_name["aten::to"].ops == pytest.approx(60_000)
    assert found.by_name["aten::to"].ns == pytest.approx(60_000 * 20_000)
    assert found.by_name["aten::to"].ops_error < before.by_name["aten::to"].ops_error
    assert found.eager.ops == pytest.approx(180_000)


def test_they_are_on_the_threads_that_windows_saw_ops_on() -> None:
    gap = kind(1, 10 * S, octave=33, slices=three_in_a_row(), others=(3, 30 * S))
    found = with_numbers(gap, mul=240_000, sum=240_000)
    assert found.by_name["aten::to"].ops == pytest.approx(240_000)
    assert found.main_ns.ns == pytest.approx(found.eager.ns / 4)
    assert found.other_ns.ns == pytest.approx(found.eager.ns * 3 / 4)


def test_ops_take_no_longer_than_the_clock_allows() -> None:
    found = with_numbers(GAP, mul=300_000)
    assert found.by_name["aten::mul"].ops == pytest.approx(300_000)
    assert found.eager.ns == pytest.approx(10 * S)


def test_on_which_line_they_are_is_as_windows_saw() -> None:
    cells = [cell("aten::mul", 100, 50_000), cell("aten::mul", 50, 50_000, line=1, slot=1)]
    varied = part((0.01, 10 * MS, 20, MS), (0.01, 10 * MS, 130, 2 * MS), cells=cells)
    found = with_numbers(kind(1, 10 * S, octave=33, slices=varied), mul=30_000)
    by_line = {line.line: sums for (_, line), sums in found.by_line.items()}
    assert [by_line[1].ops, by_line[2].ops] == pytest.approx([20_000, 10_000])
    # Known is how many they are together, and all that windows can have wrong is the shares.
    assert by_line[1].ops_error == pytest.approx(by_line[2].ops_error, rel=0.01)
    assert by_line[1].ops_error > 1_000 > found.by_name["aten::mul"].ops_error
    alone = with_numbers(GAP, mul=30_000)
    assert alone.by_line["aten::mul", LINES[0]].ops_error < 1


def test_what_was_seen_for_itself_is_no_more_than_that() -> None:
    gap = long_gap(cell("aten::mul", 100, 50_000))
    certain = part((0.1, 100 * MS, 500, MS), cells=[cell("aten::mul", 500, 2_000)])
    gap.slices = certain, gap.slices[1]
    found = with_numbers(gap, mul=1_000)
    assert found.by_name["aten::mul"].ops == pytest.approx(1_000)
    # 500 of 2 us, and as many of 50 us.
    assert found.by_name["aten::mul"].ns == pytest.approx(26 * MS)


def test_what_only_certain_windows_saw_stands_for_all() -> None:
    """Such as a burst between two of chance's, in which they looked at what it was."""
    gap = long_gap(cell("aten::add", 200, 20_000))
    certain = part((0.1, 100 * MS, 50, MS), cells=[cell("aten::mul", 50, 20_000)])
    gap.slices = certain, gap.slices[1]
    found = with_numbers(gap, mul=1_000)
    assert found.by_name["aten::mul"].ops == pytest.approx(1_000)
    assert found.by_name["aten::mul"].ns == pytest.approx(20 * MS)
    assert found.by_line["aten::mul", LINES[0]].ops == pytest.approx(1_000)
    without = with_numbers(gap)
    assert found.eager.ops - without.eager.ops == pytest.approx(950)
    assert found.main_ns.ns - without.main_ns.ns == pytest.approx(19 * MS)


def test_windows_that_saw_an_op_begin_and_nothing_of_it() -> None:
    """What has a name and no number stands for nothing."""
    gap = long_gap(cell("aten::mul", 0, 50_000))
    other = kind(1, 10 * S, octave=34, slices=slices(cell("aten::mul", 100, 50_000)), to=2)
    seen = observed(gap, other, lines=LINES)
    seen.called = Called({"aten::mul": Number(5_000, 700)})
    assert estimate(seen).by_name["aten::mul"].ops == pytest.approx(5_000)


def test_calls_that_no_window_saw_may_be_ops() -> None:
    error = with_numbers(GAP, unknown=600, mul=10_000, add=20_000).eager.ops_error
    assert error * SPREAD == pytest.approx(600, rel=0.01)


def test_where_all_was_seen_nothing_is_calibrated() -> None:
    seen = observed(GAP, whole=True)
    seen.called = Called({"aten::mul": Number(5, 1)})
    assert estimate(seen).by_name["aten::mul"].ops == pytest.approx(10_000)
