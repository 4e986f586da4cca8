"""What stands for long gaps that have as many ops each, however long they take."""

import math

import pytest
from seen_gaps import S, kind, nothing, observed, part

from instrumented_backend.observe.ops.cells import Cell
from instrumented_backend.observe.ops.estimate import Estimate, estimate
from instrumented_backend.observe.ops.observed import Kind, Part
from instrumented_backend.observe.ops.scaled import CUT
from instrumented_backend.observe.ops.spread import SPREAD

MS = S // 1000
STEPS = 50_000  # ops
EACH = 5600  # of an evaluation


def found_with(*evaluations: Kind) -> Estimate:
    """Beside a thousand gaps of 1 ms, with 50 ops in each of the ten that chance saw."""
    steps = kind(1000, S, None, part((10, 10 * MS, 500, 5 * MS)), octave=19)
    return estimate(observed(steps, *evaluations))


def evaluations(
    n: int, each_ms: int, octave: int, slices: Part, looked: Part, **whole: Part
) -> Kind:
    ns = n * each_ms * MS
    return kind(n, ns, octave=octave, certain_slices=slices, looked=looked, **whole)


def slices_of(*each: tuple[int, int]) -> tuple[Part, Part]:
    """Of gaps of so many milliseconds, a fourth of each, and so many ops if all are like it."""
    slices = [(ms / 4000, ms / 4 * MS, ops / 4, ms / 8 * MS) for ms, ops in each]
    return part(*slices), part(*((1, ms * MS, ops, ms / 2 * MS) for ms, ops in each))


def test_what_one_window_saw_whole_tells_of_all_lengths() -> None:
    """A busy machine spreads evaluations over octaves; slices of them tell a tenth or two apart."""
    short = evaluations(10, 50, 25, *slices_of((50, 5100), (52, 6300)))
    whole = part((1, 100 * MS, EACH, 40 * MS))
    usual = evaluations(8, 100, 26, *slices_of((100, 4700), (90, 5900)), by_chance=whole)
    slow = evaluations(2, 200, 27, *slices_of((200, 6100)))
    eager = found_with(short, usual, slow).eager
    assert eager.ops == pytest.approx(STEPS + 20 * EACH)
    # As the slices are off, or they would be known to be alike.
    assert 0.05 * EACH < SPREAD * eager.ops_error < 20 * 0.3 * EACH


def test_one_seen_whole_does_not_tell_of_those_that_have_fewer() -> None:
    """Of three lengths in turn: chance saw the longest, and windows three others to their end."""
    slices, looked = slices_of((80, 3200), (110, 4400), (90, 3200))
    whole = part((1, 95 * MS, EACH, 60 * MS))
    ns = (80 + 110 + 90 + 95) * MS
    several = kind(
        *(4, ns, None, whole),
        octave=26,
        certain_slices=slices,
        looked=looked,
        met=looked,
        ended=looked,
    )
    eager = found_with(several).eager
    assert eager.ops == pytest.approx(STEPS + EACH + 3200 + 4400 + 3200, rel=0.01)
    assert SPREAD * eager.ops_error < 0.1 * 4 * EACH


def test_one_seen_whole_that_was_shorter_for_it_does_not_tell_of_the_others() -> None:
    """Each lasts for half a second, however often its loop goes round."""
    slices, looked = slices_of((500, 2150), (490, 2250), (495, 2100))
    whole = part((1, 380 * MS, 1850, 300 * MS))
    several = evaluations(8, 485, 28, slices, looked, by_chance=whole)
    eager = found_with(several).eager
    assert eager.ops == pytest.approx(STEPS + 1850 + 7 * 2100, rel=0.02)
    assert SPREAD * eager.ops_error > 0.03 * 8 * 2100


def test_what_steps_end_with_may_begin_evaluations() -> None:
    """An optimizer's ops, 50 of each step; of seven evaluations no window saw the beginning."""
    mul = Cell("aten::mul_", 0, 1, 500, 5 * MS, {})
    steps = kind(1000, S, None, part((10, 10 * MS, 500, 5 * MS), cells=[mul]), octave=19)
    slices, looked = slices_of((500, 2150), (490, 2250), (495, 2100))
    whole = part((1, 380 * MS, 1850, 300 * MS))
    found = estimate(observed(steps, evaluations(8, 485, 28, slices, looked, by_chance=whole)))
    named = found.by_name["aten::mul_"]
    assert SPREAD * named.ops_error == pytest.approx(7 * 50, rel=0.01)


@pytest.mark.parametrize("n", [2, 7])
def test_those_that_have_the_same_number_tell_whatever_slices_do(n: int) -> None:
    """As where they begin and end with small ops, and slices saw the ends."""
    slices, looked = slices_of(*[(15, 600), (15, 620)] * 3)
    windows = [(1, 15 * MS, 240, 14 * MS)] * n
    seen = evaluations(112, 15, 23, slices, looked, by_chance=part(*windows))
    eager = found_with(seen).eager
    assert eager.ops == pytest.approx(STEPS + 112 * 240, rel=0.001)


def test_of_gaps_that_were_all_looked_at_none_may_be_without() -> None:
    """As sure as slices of them are; not, as where others may be no evaluations at all."""
    slices, looked = slices_of((100, 4000), (120, 4600), (125, 5400))
    ns = 345 * MS
    all_three = found_with(
        kind(3, ns, octave=26, certain_slices=slices, looked=looked, met=looked)
    ).eager
    some = found_with(
        kind(6, 2 * ns, octave=26, certain_slices=slices, looked=looked, met=looked)
    ).eager
    assert all_three.ops == pytest.approx(STEPS + 14_000, rel=0.01)
    assert some.ops == pytest.approx(STEPS + 28_000, rel=0.02)
    assert SPREAD * all_three.ops_error < 0.3 * 14_000
    unlike = math.sqrt((4 / 5) * (1 / 5) / 6)  # by Laplace's rule, of three
    assert some.ops_error > 3 * unlike * 14_000 / 3


def test_the_last_gap_is_as_likely_an_evaluation() -> None:
    """Nothing was seen of it. Two standard errors are all that it has."""
    alone = evaluations(19, 50, 25, *slices_of((50, EACH), (50, EACH)))
    last = kind(1, 60 * MS, octave=25, to=CUT)
    eager = found_with(alone, last).eager
    added = eager.ops - found_with(alone).eager.ops
    assert added == pytest.approx(EACH, rel=0.02) and SPREAD * eager.ops_error > 0.9 * EACH
    # Where it has ops, they tell.
    own, looked = slices_of((60, 2 * EACH))
    last = kind(1, 60 * MS, octave=25, to=CUT, certain_slices=own, looked=looked)
    more = found_with(alone, last).eager.ops - eager.ops
    assert more > 0


def test_a_step_that_was_held_up_at_first_is_no_evaluation() -> None:
    """A certain window saw one of that length with no ops: it is itself, and no other."""
    held_up, whole = part((1, 40 * MS, 0, 0), cells=[]), part((1, 50 * MS, EACH, 30 * MS))
    looked = slices_of((50, 5500), (52, 5700), (49, 5600))
    seen = evaluations(11, 50, 25, *looked, certain=held_up, by_chance=whole)
    assert found_with(seen).eager.ops == pytest.approx(STEPS + 10 * EACH)


def test_what_is_too_short_for_an_evaluations_ops_is_none() -> None:
    """Twenty gaps of 9 ms, of which nothing was seen; the ops of an evaluation take 25 ms. They may
    be parts of one: as many ops as go into their time."""
    alone = evaluations(10, 50, 25, *slices_of((50, EACH), (50, EACH)))
    held_up = kind(20, 180 * MS, octave=23)
    added = found_with(alone, held_up).eager.ops - found_with(alone).eager.ops
    assert added == pytest.approx(20 * (50 + 8 * EACH / 50))
    as_long = kind(20, 20 * 40 * MS, octave=25)
    added = found_with(alone, as_long).eager.ops - found_with(alone).eager.ops
    assert added == pytest.approx(20 * EACH, rel=0.02)


def test_of_those_that_chance_saw_some_are_steps_held_up() -> None:
    """Two of four, and the two that were looked at are not: so are half of the other eighteen."""
    held_up = part(*[(1, 50 * MS, 50, MS)] * 2)
    seen = evaluations(22, 50, 25, *slices_of((50, EACH), (50, EACH)), by_chance=held_up)
    eager = found_with(seen).eager
    # Seen by slices: each of the eleven begins as a step does, for 1 ms.
    evaluations_ops = 11 * (50 + EACH * (1 - 1 / 50))
    assert eager.ops == pytest.approx(STEPS + 2 * 50 + 9 * 50 + evaluations_ops)
    share_error = math.sqrt(0.5 * 0.5 / (4 + 3))  # three of six, by Laplace's rule
    assert eager.ops_error >= 18 * share_error * EACH * (1 - 1 / 50)


def test_loops_that_last_for_so_long_have_ops_by_their_time() -> None:
    """Twice as long, and twice as many: of one that is twice as long again, four times as many."""
    short = evaluations(4, 50, 25, *slices_of((50, 5000), (50, 5200)))
    longer = evaluations(4, 100, 26, *slices_of((100, 10_400), (100, 10_000)))
    longest = kind(1, 200 * MS, octave=27)
    found = found_with(short, longer, longest).eager
    each_ms = 30_600 / 300
    begun = 9 * 50  # ops of the first millisecond of each
    assert found.ops == pytest.approx(STEPS + begun + each_ms * (800 - 9), rel=0.001)


def test_slices_of_chance_tell_as_well() -> None:
    """By slices of half a gap that was looked at there are 4,200 ops in each, and by those of
    chance, three times as long, 5,400; in gaps twice as long are as many."""
    slices, looked = slices_of((200, 4000), (200, 4400))
    by_chance = part(*[(0.1, 100 * MS, 2700, 50 * MS)] * 3)
    usual = kind(8, 1600 * MS, octave=27, certain_slices=slices, looked=looked, slices=by_chance)
    in_longer = part(*[(0.2, 200 * MS, 2700, 100 * MS)] * 3)
    longer = kind(4, 1600 * MS, octave=28, slices=in_longer)
    found = found_with(usual, longer).eager
    each = (2100 + 8100 + 8100) / (0.5 + 1.5 + 1.5)
    begun = 12 * 50 - (8 * each / 200 + 4 * each / 400)
    assert found.ops == pytest.approx(STEPS + 12 * each + begun, rel=0.02)


@pytest.mark.parametrize("other_ops", [300, 60_000])
def test_what_differs_by_more_is_told_by_its_own_length(other_ops: int) -> None:
    one = evaluations(3, 50, 25, *slices_of(*[(50, EACH)] * 3))
    other = evaluations(3, 100, 26, *slices_of(*[(100, other_ops)] * 3))
    alone = [found_with(each).eager.ops - STEPS for each in (one, other)]
    found = found_with(one, other).eager.ops - STEPS
    assert found == pytest.approx(sum(alone), rel=0.1)


def test_their_ops_take_no_longer_than_they_do() -> None:
    """One seen whole took 90 ms, nearly all of it ops; the ten others took 40 ms each."""
    whole = part((1, 90 * MS, EACH, 88 * MS))
    slices, looked = slices_of((40, EACH), (40, EACH))
    found = found_with(
        evaluations(10, 40, 25, slices, looked),
        evaluations(1, 90, 26, nothing(), nothing(), by_chance=whole),
    ).eager
    assert found.ops == pytest.approx(STEPS + 11 * EACH)
    # As much of their own time as slices of them say: a half.
    assert found.ns == pytest.approx(500 * MS + 88 * MS + 400 * MS / 2)


@pytest.mark.parametrize("with_chance", [False, True])
def test_what_the_first_one_loads_is_its_own(with_chance: bool) -> None:
    """A certain window saw it load kernels of `mm`, which takes longer than all others of one."""

    def of_two(seen: Part, mm_ns: float) -> Part:
        half, mul_ns = round(seen.seen.ops / 2), seen.seen.op_ns - mm_ns
        cells = [
            Cell("aten::mm", 0, 0, half, round(mm_ns), {}),
            Cell("aten::mul", 0, 1, half, round(mul_ns), {}),
        ]
        return Part(seen.seen, cells)

    slices, looked = slices_of((50, EACH), (50, EACH))
    slices = of_two(slices, 0.8 * slices.seen.op_ns)
    first = of_two(part((1, 100 * MS, EACH, 75 * MS)), 70 * MS)
    whole = of_two(part((1, 50 * MS, EACH, 25 * MS)), 20 * MS) if with_chance else None
    found = found_with(
        evaluations(10, 50, 25, slices, looked, by_chance=whole),
        evaluations(1, 100, 26, nothing(), nothing(), certain=first),
    )
    names = found.by_name
    assert names["aten::mm"].ops == names["aten::mul"].ops == pytest.approx(11 * EACH / 2)
    # Slices and windows of chance saw four fifths in it.
    others_ns = 250 * MS
    assert names["aten::mm"].ns == pytest.approx(70 * MS + 0.8 * others_ns, rel=0.001)
    assert names["aten::mul"].ns == pytest.approx(5 * MS + 0.2 * others_ns, rel=0.001)
