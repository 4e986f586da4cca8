"""Cells and their lines, from rows made by hand."""

import ctypes
import random
import statistics
import tracemalloc
from collections.abc import Callable

import pytest

from instrumented_backend.observe.native.structs import CellRow, SampleRow
from instrumented_backend.observe.ops.cells import OCTAVES, Cell, OnLine, Together, cells_of_parts

ADD = ctypes.c_char_p(b"aten::add")
FIRST = 4
EDGE, KIND = 2, 2 * OCTAVES + 10


def cell_row(
    kind: int = KIND, part: int = 0, mark: int = 1, slot: int = 3, count: int = 10, ns: int = 400
) -> CellRow:
    return CellRow(kind, kind // OCTAVES, part, mark, slot, 0, ADD.value, count, ns)


def sample_row(
    line: int,
    *,
    kind: int = KIND,
    part: int = 0,
    mark: int = 1,
    slot: int = 3,
    weight: float = 1.0,
    ns: float = 1.0,
) -> SampleRow:
    return SampleRow(kind, kind // OCTAVES, part, mark, slot, line, weight, ns, weight**2)


def cells(rows: list[CellRow], samples: list[SampleRow]) -> dict[tuple[int, int], list[Cell]]:
    found = cells_of_parts((CellRow * len(rows))(*rows), (SampleRow * len(samples))(*samples))
    return {key: list(part) for key, part in found.items()}


def lines(*samples: SampleRow) -> dict[int, tuple[float, float]]:
    """The ops and nanoseconds on each."""
    (cell,) = cells([cell_row()], list(samples))[KIND, 0]
    return {line: (sums.ops, sums.ns) for line, sums in cell.lines.items()}


def test_cells_are_apart_by_kind_and_part() -> None:
    rows = [
        cell_row(part=0, slot=3),
        cell_row(part=0, slot=1, count=7, ns=70),
        cell_row(part=FIRST, slot=3, count=1, ns=9),
        cell_row(kind=-1, part=2, mark=-1, slot=5),
    ]
    assert cells(rows, []) == {
        (KIND, 0): [
            Cell("aten::add", 1, 3, 10, 400, {}),
            Cell("aten::add", 1, 1, 7, 70, {}),
        ],
        (KIND, FIRST): [Cell("aten::add", 1, 3, 1, 9, {})],
        (-1, 2): [Cell("aten::add", -1, 5, 10, 400, {})],
    }
    assert cells([], []) == {}


def test_ops_and_their_time_are_shared_out_by_the_samples() -> None:
    few, many = sample_row(7, weight=1.0, ns=30.0), sample_row(8, weight=4.0, ns=10.0)
    assert lines(many, few) == {7: (2.0, 300.0), 8: (8.0, 100.0)}
    assert lines(sample_row(7, ns=0.0), sample_row(8, ns=0.0)) == {7: (5.0, 200.0), 8: (5.0, 200.0)}


WIDER: list[Callable[[int], SampleRow]] = [
    lambda line: sample_row(line, part=0),
    lambda line: sample_row(line, part=FIRST),
    lambda line: sample_row(line, kind=EDGE * OCTAVES),
    lambda line: sample_row(line, kind=(EDGE + 1) * OCTAVES),
]


@pytest.mark.parametrize("nearest", range(len(WIDER)))
def test_the_nearest_samples_count(nearest: int) -> None:
    """Of the part, of the kind of gap, of the edge, of the mark; others are of no use."""
    samples = [make(number) for number, make in enumerate(WIDER)][nearest:]
    strangers = [sample_row(9, slot=2), sample_row(9, mark=2), sample_row(9, kind=-1, mark=-1)]
    assert lines(*strangers, *reversed(samples)) == {nearest: (10.0, 400.0)}
    assert lines(*strangers) == {}


def test_samples_of_several_wider_kinds_are_added_up() -> None:
    found = lines(
        sample_row(7, part=1, weight=1.0),
        sample_row(8, part=2, weight=2.0),
        sample_row(7, part=FIRST, weight=2.0),
    )
    assert found == {
        7: (pytest.approx(6.0), pytest.approx(400 * 2 / 3)),
        8: (pytest.approx(4.0), pytest.approx(400 / 3)),
    }


@pytest.mark.parametrize("weight", [1.0, 16.0])
def test_what_samples_say_is_as_uncertain_as_they_are_few(weight: float) -> None:
    """Drawn anew each time, 3 of 4 ops being on a line: that is how the numbers differ."""
    drawn, few = random.Random(0), 16
    found, variances = [], []
    for _ in range(400):
        taken = [sample_row(7 if drawn.random() < 0.75 else 8, weight=weight) for _ in range(few)]
        summed = [(line, [one for one in taken if one.line == line]) for line in (7, 8)]
        rows = [
            SampleRow(KIND, EDGE, 0, 1, 3, line, weight * len(ones), 1.0, weight**2 * len(ones))
            for line, ones in summed
            if ones
        ]
        (cell,) = cells([cell_row()], rows)[KIND, 0]
        found.append(cell.lines[7].ops)
        variances.append(cell.lines[7].ops_variance)
    true = 10**2 * 0.75 * 0.25 / few
    assert statistics.variance(found) == pytest.approx(true, rel=0.25)
    assert statistics.mean(variances) == pytest.approx(true, rel=0.25)


def test_samples_that_stand_for_many_are_more_uncertain() -> None:
    rows = [sample_row(7, weight=1.0), sample_row(8, weight=1.0), sample_row(8, weight=8.0)]
    (cell,) = cells([cell_row()], rows)[KIND, 0]
    # A share of 0.1: (0.9² · 1 + 0.1² · 65) / 10², of 10 ops.
    assert cell.lines[7].ops_variance == pytest.approx(1.46)
    assert cell.lines[8].ops_variance == pytest.approx(1.46)


def test_lines_of_all_lengths_of_gaps_have_what_samples_say() -> None:
    """Sampled gaps of line 7 were nearly all taken for longer ones: `test_raking.py`."""
    longer = KIND + 1
    rows = [cell_row(count=75), cell_row(kind=longer, count=125)]
    samples = [
        sample_row(7, weight=1.0),
        sample_row(7, kind=longer, weight=15.0, ns=30.0),
        sample_row(8, kind=longer, weight=16.0, ns=30.0),
    ]
    found = cells(rows, samples)
    assert found[KIND, 0][0].lines == {7: OnLine(75, 400)}
    # Half of all 200, less 75; half of its time, as long as there was more of it.
    (cell,) = found[longer, 0]
    assert cell.lines[7].ops == pytest.approx(25, rel=1e-2)
    assert cell.lines[8].ops == pytest.approx(100, rel=1e-2)
    assert cell.lines[7].ns == pytest.approx(400 * 0.5 * 25 / (125 * 15 / 31), rel=1e-2)


def test_threads_without_marks_have_their_own_samples_only() -> None:
    row = cell_row(kind=-1, part=2, mark=-1)
    own = sample_row(7, kind=-1, part=2, mark=-1)
    other = sample_row(8, kind=-1, part=3, mark=-1)
    assert cells([row], [own, other])[-1, 2][0].lines == {7: OnLine(10.0, 400.0)}
    assert cells([row], [other])[-1, 2][0].lines == {}


def test_cells_of_several_parts_are_added_up_each_time() -> None:
    parts = [
        [
            Cell("aten::add", 1, 3, 10, 400, {7: OnLine(10.0, 400.0, 4.0)}),
            Cell("aten::mul", 1, 4, 1, 5, {}),
        ],
        [Cell("aten::add", 1, 3, 2, 50, {7: OnLine(1.0, 25.0, 0.5), 8: OnLine(1.0, 25.0, 0.5)})],
    ]
    both = Together([(parts[0], 1.0), (parts[1], 2.0)])
    for _ in range(2):
        assert list(both) == [
            Cell("aten::add", 1, 3, 14, 500, {7: OnLine(12.0, 450.0, 6.0), 8: OnLine(2, 50, 2.0)}),
            Cell("aten::mul", 1, 4, 1, 5, {}),
        ]
    assert len(both) == 2


def test_many_cells_take_little_memory() -> None:
    """As objects they would take a kilobyte each, of which the process keeps the most."""
    kinds, slots = 4, 2_000
    count = kinds * slots
    rows, samples = (CellRow * count)(), (SampleRow * count)()
    for number in range(count):
        kind, slot = number // slots, number % slots
        rows[number] = cell_row(kind=kind, slot=slot)
        samples[number] = sample_row(7, kind=kind, slot=slot)
    tracemalloc.start()
    try:
        parts = cells_of_parts(rows, samples)
        ops = sum(cell.count for part in parts.values() for cell in part)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert ops == 10 * count and peak < 400 * count
