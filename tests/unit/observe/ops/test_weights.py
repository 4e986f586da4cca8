"""Windows that stand for more of the run than others, and how uncertain sums over them are."""

import itertools

import pytest
from seen_gaps import kind, observed, part

from instrumented_backend.observe.native.structs import Seen
from instrumented_backend.observe.ops.cells import Cell
from instrumented_backend.observe.ops.estimate import estimate
from instrumented_backend.observe.ops.observed import Part
from instrumented_backend.observe.ops.scaled import together
from instrumented_backend.observe.ops.spread import variance_of_windows

NAMES = "aten::add", "aten::mul"


def weighing(weight: float, n: float, each_ops: float, slot: int = 0) -> Part:
    ops = n * each_ops
    seen = Seen(n, 100 * n, ops, 5 * ops, windows=1, n2=n * n, ops2=ops * ops, weight=weight)
    return Part(seen, [Cell(NAMES[slot], 0, slot, ops, 5 * ops, {})])


def test_parts_are_added_up_by_what_their_gaps_weigh() -> None:
    early, late = weighing(0.5, 10, 1), weighing(1.5, 30, 3)
    both = together([early, late])
    # Of 40 gaps: 10 that weigh 0.5 and 30 that weigh 1.5, 1.25 on average.
    assert (both.seen.n, both.seen.windows) == (40, 2)
    assert both.seen.weight == pytest.approx(1.25)
    mean = (10 * 0.5 * 1 + 30 * 1.5 * 3) / (10 * 0.5 + 30 * 1.5)
    assert both.seen.ops == pytest.approx(40 * mean)
    assert both.seen.n2 == pytest.approx((10 * 0.5 / 1.25) ** 2 + (30 * 1.5 / 1.25) ** 2)
    assert both.counts["aten::add"] == pytest.approx(both.seen.ops)


def test_without_weights_parts_are_added_up() -> None:
    """As of certain windows, which hand out none."""
    both = together([weighing(0, 10, 1), weighing(0, 30, 3, slot=1)])
    assert (both.seen.n, both.seen.ops, both.seen.ops2) == (40, 100, 10**2 + 90**2)
    assert dict(both.counts) == {"aten::add": 10, "aten::mul": 90}


def windows(*ops: float) -> Seen:
    """Each of ten gaps, one after the other."""
    seen = Seen(10 * len(ops), 1, sum(ops), 1, len(ops), pairs=len(ops) - 1)
    seen.n2, seen.ops2 = 100 * len(ops), sum(each**2 for each in ops)
    seen.ops_n = 10 * sum(ops)
    apart = [each - before for before, each in itertools.pairwise(ops)]
    seen.apart_ops2 = sum(each**2 for each in apart) / 2
    return seen


def test_a_program_that_changes_is_as_uncertain_as_its_windows_are_apart_from_the_next() -> None:
    in_turn = variance_of_windows(windows(*[10, 90] * 4), "ops", 10)
    in_phases = variance_of_windows(windows(*[10] * 4, *[90] * 4), "ops", 10)
    # One step of 80 in seven pairs, half of its square; against 40 from the mean for all eight.
    assert in_phases / in_turn == pytest.approx((80**2 / 2 / 7) / (8 * 40**2 / 7))
    # A few windows do not tell.
    few = variance_of_windows(windows(10, 10, 90, 90), "ops", 10)
    assert few == pytest.approx(variance_of_windows(windows(10, 90, 10, 90), "ops", 10))


def test_ops_of_one_name_are_uncertain_together() -> None:
    """A gap that has more of them has more first ones, second ones, and so on."""
    turns = [Cell("aten::add", 0, slot, 3, 30, {}, turn=slot) for slot in range(4)]
    by_chance = part((2, 200, 2, 20), (2, 200, 4, 40), (2, 200, 6, 60), cells=turns)
    found = estimate(observed(kind(60, 6000, None, by_chance)))
    assert found.by_name["aten::add"].ops_variance >= found.eager.ops_variance * 0.99
