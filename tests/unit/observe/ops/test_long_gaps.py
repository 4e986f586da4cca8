"""What stands for gaps that are longer than a window."""

import math
from collections import Counter

import pytest
from seen_gaps import LONG, S, kind, observed, part

from instrumented_backend.observe.ops.cells import Cell
from instrumented_backend.observe.ops.estimate import estimate
from instrumented_backend.observe.ops.long_gaps import OTHERS_ERR, TOLD_COST
from instrumented_backend.observe.ops.observed import Kind, Part
from instrumented_backend.observe.ops.scaled import CUT
from instrumented_backend.observe.ops.spread import SPREAD


def test_long_gaps_are_scaled_by_their_time() -> None:
    # Slices of 0.5 s and 1.5 s of a gap of 20 s: ten times what they saw, 1000 ops a second.
    slices = part((0.5, 0.5 * S, 500, 1e6), (1.5, 1.5 * S, 1500, 3e6))
    found = estimate(observed(kind(1, 20 * S, octave=34, slices=slices)))
    assert found.eager.ops == pytest.approx(20_000) and found.eager.ns == pytest.approx(4e7)
    # A fraction of an op for each end of each window: 10² * 2 / 6; the residuals are 0.
    assert found.eager.ops_error == pytest.approx(math.sqrt(100 * 2 / 6))


def test_what_went_into_seeing_ops_is_no_time_of_other_ops() -> None:
    slices = part((0.5, 0.5 * S, 500, 1e6), (1.5, 1.5 * S, 1500, 3e6))
    found = estimate(observed(kind(1, 21 * S, octave=34, slices=slices, cost_ns=S)))
    assert found.eager.ops == pytest.approx(20_000) and found.eager.ns == pytest.approx(4e7)
    # For 2 s that were seen, 1 s of it: all of the other 18,000 ops err together by half of what
    # that may be wrong by.
    told = TOLD_COST / 2 * 18_000
    assert SPREAD * found.eager.ops_error == pytest.approx(told, rel=0.01)


def test_what_one_slice_may_have_seen_all_of_is_as_uncertain_as_one_slice() -> None:
    """Of 2000 ops in two slices, 40 are of a name that only the gap's beginning may have."""
    cells = [Cell("aten::add", 0, 0, 1960, 4e6, {}), Cell("aten::mul_", 0, 1, 40, 1e5, {})]
    slices = part((1, S, 1000, 2e6), (1, S, 1000, 2e6), cells=cells)
    found = estimate(observed(kind(1, 20 * S, octave=34, slices=slices)))
    rare, usual = found.by_name["aten::mul_"], found.by_name["aten::add"]
    assert rare.ops == pytest.approx(400) and SPREAD * rare.ops_error >= 360
    assert usual.ops == pytest.approx(19_600) and SPREAD * usual.ops_error < 0.05 * usual.ops


@pytest.mark.parametrize("octaves", [(29,) * 8, (29,) * 4 + (30,) * 3 + (31,)])
def test_what_begins_gaps_may_have_begun_those_that_slices_saw_later(
    octaves: tuple[int, ...],
) -> None:
    """After 8 of 1008 steps, which end with 3 ops of one name, comes a second of other ones.

    However long they are: either all begin so or none.
    """
    mul = [Cell("aten::mul_", 0, 1, 30, 1e5, {})]
    step = kind(1000, 10**9, octave=19, by_chance=part(*[(1, 10**6, 3, 1e4)] * 10, cells=mul))
    add = [Cell("aten::add", 0, 0, 4000, 4e6, {})]
    slices = part(*[(0.5, 0.5 * S, 500, 1e6)] * 8, cells=add)
    long = [
        kind(n, n * S, octave=octave, slices=slices)
        for octave, n in sorted(Counter(octaves).items())
    ]
    found = estimate(observed(step, *long))
    assert found.by_name["aten::mul_"].ops == pytest.approx(3000)
    assert SPREAD * found.by_name["aten::mul_"].ops_error == pytest.approx(8 * 3)
    assert SPREAD * found.by_name["aten::add"].ops_error < 0.01 * found.by_name["aten::add"].ops


def test_slices_in_certain_windows_stand_for_themselves() -> None:
    certain = part((2, 2 * S, 9000, 1e6))
    slices = part((1, S, 100, 1e4))
    found = estimate(observed(kind(1, 12 * S, octave=33, slices=slices, certain_slices=certain)))
    # The 10 s left: ten times the second that was seen.
    assert found.eager.ops == pytest.approx(9000 + 1000)
    only = estimate(observed(kind(1, 12 * S, octave=33, certain_slices=certain)))
    assert only.eager.ops == pytest.approx(9000 * 6)


def test_slices_of_few_windows_are_as_uncertain_as_certain_ones_differ_from_them() -> None:
    # 10 s left, of which two windows saw 0.2 s, with 100 ops; the certain one had 90 in 0.2 s.
    certain, slices = part((2, 2 * S, 900, 9e6)), part(*[(0.1, S // 10, 50, 5e5)] * 2)
    long = kind(1, 12 * S, octave=33, slices=slices, certain_slices=certain)
    found = estimate(observed(long))
    assert found.eager.ops == pytest.approx(900 + 5000)
    edges = 50**2 * 2 / 6
    assert found.eager.ops_error == pytest.approx(math.sqrt((500 / SPREAD) ** 2 + edges))
    many = part(*[(0.1, S // 10, 50, 5e5)] * 8)
    found = estimate(observed(kind(1, 12 * S, octave=33, slices=many, certain_slices=certain)))
    assert found.eager.ops_error == pytest.approx(math.sqrt(12.5**2 * 8 / 6))


def test_one_window_tells_nothing_of_the_rest_of_a_long_gap() -> None:
    slices = part((0.1, S // 10, 500, 5e6))
    found = estimate(observed(kind(1, S, octave=29, slices=slices)))
    assert found.eager.ops == pytest.approx(5000)
    # All of the other 4500; and by chance: ten times the square root; and the window's two ends.
    apart, by_chance, edges = 4500 / SPREAD, 10 * math.sqrt(500), 10 / math.sqrt(6)
    error = math.sqrt(apart**2 + 0.9 * by_chance**2 + edges**2)
    assert found.eager.ops_error == pytest.approx(error)


@pytest.mark.parametrize(
    ("windows", "ops", "apart"),
    [
        # Two saw nothing in 0.2 s; what others saw, 4000 in the other 0.8, weighs a quarter of one.
        ([(0.1, S // 10, 0, 0)] * 2, 4000 / 9, 4000 / 9 + OTHERS_ERR * 4000 / 81),
        # Two saw as many as 4800 in 0.8 s.
        (
            [(0.1, S // 10, 600, 6e6)] * 2,
            1200 + (8 * 4800 + 4000) / 9,
            800 / 9 + OTHERS_ERR * 4000 / 81,
        ),
        # One was short, and is worth a hundredth.
        ([(0.0005, S // 2000, 1, 1e4)], 1 + 0.9995 * (2000 + 25 * 5000) / 26, None),
        # None: as in others, or none at all, and others err.
        ([], 5000, OTHERS_ERR * 5000),
    ],
)
def test_long_gaps_of_few_windows_are_like_others_after_the_same_mark(
    windows: list[tuple[float, float, float, float]], ops: float, apart: float | None
) -> None:
    known = kind(1, 4 * S, octave=31, slices=part(*[(0.1, S // 10, 500, 5e6)] * 8))
    slices = part(*windows) if windows else None
    found = estimate(observed(known, kind(1, S, octave=29, slices=slices, to=0)))
    alone = estimate(observed(known))
    assert found.eager.ops - alone.eager.ops == pytest.approx(ops)
    added = SPREAD * math.sqrt(found.eager.ops_error**2 - alone.eager.ops_error**2)
    assert added == pytest.approx(apart, rel=1e-3) if apart else added > 3000


def test_long_gaps_that_are_alike_are_counted() -> None:
    """However long each took: where windows saw them, they took longer."""
    whole = part((1, 0.21 * S, 5600, 0.1 * S), (1, 0.19 * S, 5600, 0.1 * S))
    found = estimate(observed(kind(20, int(3.2 * S), None, whole, octave=LONG)))
    assert found.eager.ops == pytest.approx(20 * 5600) and found.eager.ops_error == 0


def test_long_gaps_that_nobody_saw_are_like_those_of_about_their_length() -> None:
    whole = part((1, 0.2 * S, 5600, 0.1 * S), (1, 0.2 * S, 5600, 0.1 * S))
    seen = kind(20, 4 * S, None, whole, octave=LONG)
    for slices in (None, part((0.05, S // 20, 1100, 1e7))):  # what one window saw of it is no count
        longer = kind(1, int(0.3 * S), octave=LONG + 1, slices=slices)
        found = estimate(observed(seen, longer))
        assert found.eager.ops == pytest.approx(21 * 5600) and found.unseen_ns == 0
        # Half as long again, by as many ops or by none.
        assert SPREAD * found.eager.ops_error == pytest.approx(5600 * 0.5)


def test_the_last_long_gap_is_as_likely_like_those_of_about_its_length() -> None:
    """Two standard errors are all that it has; where slices of it were seen, they tell."""
    whole = part((1, 0.12 * S, 5600, 0.1 * S), (1, 0.12 * S, 5600, 0.1 * S))
    seen = kind(19, int(19 * 0.12 * S), None, whole, octave=LONG - 1)
    alone = estimate(observed(seen))
    found = estimate(observed(seen, kind(1, int(0.14 * S), octave=LONG, to=CUT)))
    assert found.eager.ops == pytest.approx(20 * 5600) and found.unseen_ns == 0
    assert SPREAD * math.sqrt(found.eager.ops_error**2 - alone.eager.ops_error**2) > 5600
    slices = part((0.05, S // 20, 100, 1e7))
    found = estimate(observed(seen, kind(1, int(0.14 * S), octave=LONG, to=CUT, slices=slices)))
    assert found.eager.ops < alone.eager.ops + 1000


def test_long_gaps_that_nobody_saw_have_ops_by_their_time() -> None:
    """Where what was seen is far longer."""
    seen = kind(1, 60 * S, first=part((1, 60 * S, 60_000, 30 * S)), octave=35)
    found = estimate(observed(seen, kind(2, S, octave=28)))
    assert found.eager.ops == pytest.approx(61_000)
    assert SPREAD * found.eager.ops_error == pytest.approx(100_000)  # small ones


MS = S // 1000


def steps() -> Kind:
    """A thousand gaps of 1 ms, with 50 ops in each of the ten that chance saw."""
    return kind(1000, S, None, part((10, 10 * MS, 500, 5 * MS)), octave=19)


def test_gaps_that_were_looked_at_are_each_like_their_slices() -> None:
    """One of 0.2 s with 2000 ops in the 50 ms that were seen, one of 0.4 s with 1000 in 100 ms."""
    slices = part((0.05, 50 * MS, 2000, 20 * MS), (0.1, 100 * MS, 1000, 10 * MS))
    looked = part((1, 200 * MS, 8000, 80 * MS), (1, 400 * MS, 4000, 40 * MS))
    seen = kind(2, 600 * MS, octave=28, certain_slices=slices, looked=looked)
    found = estimate(observed(steps(), seen))
    # Each begins as a step does, for 1 ms.
    assert found.eager.ops == pytest.approx(50_000 + 100 + 12_000 * 598 / 600)
    assert found.by_name["aten::add"].ops == pytest.approx(found.eager.ops)
    assert SPREAD * found.eager.ops_error >= 100


def test_gaps_that_were_looked_at_tell_of_those_that_were_not() -> None:
    slices = part((0.05, 50 * MS, 2000, 20 * MS))
    looked = part((1, 200 * MS, 8000, 80 * MS))
    seen = kind(4, 800 * MS, octave=27, certain_slices=slices, looked=looked)
    found = estimate(observed(steps(), seen))
    assert found.eager.ops == pytest.approx(50_000 + 200 + 8000 * 796 / 200)
    # One that ends with the program, of which there are no slices, may be none like these.
    last = kind(1, 100 * MS, octave=26, to=0)
    with_last = estimate(observed(steps(), seen, last)).eager
    assert with_last.ops - found.eager.ops == pytest.approx(50 + 40 * 99)
    assert SPREAD * with_last.ops_error >= 40 * 99


@pytest.mark.parametrize("octave", [24, 28])
def test_gaps_that_only_wait_have_the_ops_of_others(octave: int) -> None:
    slices = part((0.05, 50 * MS, 0, 0), cells=[])
    looked = part((3, 900 * MS, 0, 0), cells=[])
    seen = kind(3, 900 * MS, octave=octave, certain_slices=slices, looked=looked)
    found = estimate(observed(steps(), seen))
    assert found.eager.ops == pytest.approx(50_000 + 150)
    assert SPREAD * found.eager.ops_error == pytest.approx(150)


def test_the_last_gap_is_like_others_of_its_length() -> None:
    """It ends at no mark."""
    evaluations = kind(4, 60 * MS, None, part((2, 30 * MS, 2400, 20 * MS)), octave=23)
    found = estimate(observed(steps(), evaluations, kind(1, 15 * MS, octave=23, to=0)))
    assert found.eager.ops == pytest.approx(50_000 + 5 * 1200)


def test_gaps_that_were_looked_at_take_no_more_than_the_clock_allows() -> None:
    """Three of 0.2 s, nearly all ops; three others with as many are half as long."""
    slices = part(*[(0.05, 50 * MS, 1000, 48 * MS)] * 3)
    looked = part(*[(1, 200 * MS, 4000, 192 * MS)] * 3)
    seen = kind(6, 900 * MS, octave=27, certain_slices=slices, looked=looked)
    found = estimate(observed(steps(), seen)).eager
    assert found.ops == pytest.approx(50_000 + 300 + 24_000 * (1 - 6 / 900))
    assert found.ns <= 500 * MS + 900 * MS


def looked_at(whole: Part) -> float:
    """Ops of 30 gaps of 40 ms: ten have slices, at 40 ops a millisecond, and ``whole`` was seen."""
    slices = part(*[(0.01, 10 * MS, 400, 4 * MS)] * 10)
    looked = part(*[(1, 40 * MS, 1600, 16 * MS)] * 10)
    seen = kind(30, 1200 * MS, whole, octave=25, certain_slices=slices, looked=looked)
    return estimate(observed(steps(), seen)).eager.ops - 50_000


def test_a_loop_that_lasts_for_so_long_has_fewer_ops_where_it_is_seen() -> None:
    """About 1,000 in each of two seen whole, and 1,600 by the slices of ten others."""
    # Each of the others begins as a step does, for 1 ms.
    each = 50 + 1600 * 39 / 40
    whole = part((1, 40 * MS, 990, 10 * MS), (1, 40 * MS, 1010, 10 * MS))
    assert looked_at(whole) == pytest.approx(2000 + 28 * each)


def test_what_was_seen_whole_is_exact_where_slices_say_the_same() -> None:
    assert looked_at(part((2, 80 * MS, 3100, 31 * MS))) == pytest.approx(30 * 1550)
