"""What stands for long gaps whose ops come unevenly."""

import math

import pytest
from seen_gaps import S, kind, observed, part

from instrumented_backend.observe.ops.cells import Cell
from instrumented_backend.observe.ops.estimate import Estimate, estimate
from instrumented_backend.observe.ops.observed import Kind, Part
from instrumented_backend.observe.ops.scaled import ABOUT, CUT
from instrumented_backend.observe.ops.spread import SPREAD

MS = S // 1000
STEPS = 50_000  # ops
BEGINS = (0, 4, 8, 16, 32, 64, 128, 256, 512, math.inf)  # of stages, in milliseconds

# What was seen at one stage of one gap: milliseconds and ops.
At = tuple[int, int]


def estimated(*gaps: Kind) -> Estimate:
    """Beside a thousand gaps of 1 ms, with 50 ops in each of the ten that chance saw."""
    steps = kind(1000, S, None, part((10, 10 * MS, 500, 5 * MS)), octave=19)
    return estimate(observed(steps, *gaps))


def long_gaps(n: int, each_ms: int, seen: list[list[At]], to: int = 1, **others: Part) -> Kind:
    """Of which was ``seen`` at each stage so much of one gap and another. An op takes 5 us."""
    parts = [[(1e-3 * ms, ms * MS, ops, ops * 5_000) for ms, ops in stage] for stage in seen]
    stages = {
        (begin * MS, end * MS): part(*stage)
        for begin, end, stage in zip(BEGINS, BEGINS[1:], parts, strict=False)
        if stage
    }
    slices = part(*(one for stage in parts for one in stage))
    octave = int(math.log2(each_ms * MS))
    return kind(n, n * each_ms * MS, octave=octave, to=to, slices=slices, stages=stages, **others)


# 100 ops in each millisecond of the first 64, and then a pause.
EVALUATION = [[(4, 400)], [(4, 400)], [(8, 800)], [(8, 800), (2, 200)], [(16, 1600), (30, 3000)]]
PAUSE: list[list[At]] = [[(4, 0), (4, 0), (4, 0)], [(128, 0), (100, 0)], [(200, 0), (9, 0)]]


def test_an_evaluation_and_then_a_pause() -> None:
    """More was seen of its pauses in one run, and of its evaluations in the other."""
    found = estimated(long_gaps(12, 500, EVALUATION + PAUSE)).eager
    assert found.ops == pytest.approx(STEPS + 12 * 6400)
    assert found.ns == pytest.approx(STEPS * 10_000 + 12 * 6400 * 5_000)
    seldom: list[list[At]] = [[(4, 0)], [(9, 0)], [(9, 0)]]
    assert estimated(long_gaps(12, 500, EVALUATION + seldom)).eager.ops == pytest.approx(found.ops)


def test_a_pause_and_then_an_evaluation() -> None:
    seen: list[list[At]] = [*([[(4, 0)]] * 5), [(4, 0)], [(9, 0)], [(30, 3000), (50, 5000)]]
    assert estimated(long_gaps(3, 512, seen)).eager.ops == pytest.approx(STEPS + 3 * 256 * 100)


def test_how_many_there_are_is_as_uncertain_as_gaps_differ() -> None:
    alike = estimated(long_gaps(12, 500, EVALUATION + PAUSE)).eager
    apart = [*EVALUATION[:4], [(16, 800), (16, 2400)], *PAUSE]
    differ = estimated(long_gaps(12, 500, apart)).eager
    assert differ.ops == pytest.approx(alike.ops)
    assert 12 * 32 * 100 < SPREAD * differ.ops_error < 12 * 32 * 100 * 13
    assert SPREAD * alike.ops_error < 12 * 32 * 100


def test_slices_tell_about_how_long_ops_take() -> None:
    """However many were seen: a busy machine slows them down together."""
    often = [[(4, 400)] * 9] * 5 + [[(9, 0)] * 9] * 3
    found = estimated(long_gaps(12, 500, often)).eager
    assert found.ns_error > ABOUT * 12 * 6400 * 5_000


def test_the_last_gap_is_as_likely_like_one_of_its_own_length() -> None:
    """All of its own that was seen is some of the pause, or of the evaluation; or nothing was."""
    gaps = long_gaps(11, 500, EVALUATION + PAUSE)
    without = estimated(gaps).eager
    pause: list[list[At]] = [*([[]] * 7), [(50, 0)]]
    evaluation: list[list[At]] = [[(4, 400)], [(4, 400)], [(8, 800)]]
    for own, seen_ms in ((pause, 50), (evaluation, 16), ([], 0)):
        eager = estimated(gaps, long_gaps(1, 500, own, to=CUT)).eager
        assert eager.ops == pytest.approx(STEPS + 12 * 6400)
        assert eager.ops_error > without.ops_error
        # Two standard errors are at least all that was not seen.
        unseen = 6400 * (1 - seen_ms / 500)
        assert eager.ops_error**2 - without.ops_error**2 > (unseen / SPREAD) ** 2
    # And where it is unlike them, so far as it was seen.
    sparse: list[list[At]] = [[(4, 0)], [(4, 0)], [(8, 0)], [(16, 0)]]
    eager = estimated(gaps, long_gaps(1, 500, sparse, to=CUT)).eager
    assert eager.ops == pytest.approx(STEPS + 11 * 6400 + 3200)


def test_what_was_not_seen_is_as_what_was_before_and_after_it() -> None:
    seen: list[list[At]] = [[], [(4, 400)], [], [(16, 1600)], [(9, 900)], *PAUSE[1:], [], [(9, 0)]]
    found = estimated(long_gaps(4, 600, seen)).eager
    # 64 ms are at least half as dense as the 16 before them, and no denser.
    assert STEPS + 4 * 4800 < found.ops <= STEPS + 4 * (6400 + 3200)
    known = estimated(long_gaps(4, 500, EVALUATION + PAUSE)).eager
    assert found.ops_error > known.ops_error


def test_gaps_that_were_seen_whole_are_themselves() -> None:
    """And tell of the others: the less, the surer stages are of these."""
    whole = part((1, 500 * MS, 7000, 35 * MS))
    found = estimated(long_gaps(12, 500, EVALUATION + PAUSE, by_chance=whole)).eager
    assert 7000 + 11 * 6400 < found.ops - STEPS < 7000 + 11 * 6800
    found = estimated(long_gaps(12, 500, UNSURE, by_chance=whole)).eager
    assert 7000 + 11 * 6700 < found.ops - STEPS < 12 * 7000
    # Not where they clearly differ.
    other = part((1, 500 * MS, 20000, 100 * MS))
    found = estimated(long_gaps(12, 500, EVALUATION + PAUSE, by_chance=other)).eager
    assert found.ops == pytest.approx(STEPS + 20000 + 11 * 6400)
    # And where they are alike, so are all.
    alike = part((3, 1500 * MS, 21000, 105 * MS))
    found = estimated(long_gaps(12, 500, EVALUATION + PAUSE, by_chance=alike)).eager
    assert found.ops == pytest.approx(STEPS + 12 * 7000)


# Of which two gaps went at different speeds.
UNSURE = [*EVALUATION[:4], [(16, 200), (16, 3000)], *PAUSE]


def test_gaps_that_were_seen_to_their_end_tell_of_the_others() -> None:
    """Nearly as much as those that were seen whole."""
    stages = estimated(long_gaps(12, 500, UNSURE)).eager
    ended = part((1, 500 * MS, 6900, 30 * MS), (1, 500 * MS, 7100, 40 * MS))
    found = estimated(long_gaps(12, 500, UNSURE, met=ended, ended=ended)).eager
    assert found.ops == pytest.approx(STEPS + 12 * 7000, rel=0.005)
    # Those of other lengths, if there are any, may not have been among them.
    assert 0.1 * 12 * 7000 < found.ops_error < stages.ops_error / 2
    other = part((2, S, 40_000, 200 * MS))
    found = estimated(long_gaps(12, 500, EVALUATION + PAUSE, met=other, ended=other)).eager
    assert found.ops == pytest.approx(STEPS + 12 * 6400)


def test_one_seen_whole_tells_more_than_those_that_were_looked_at() -> None:
    """These may all be off by as much: seven percent, as long as they differ by less among
    themselves than each may be off."""
    looked = part(*[(1, 500 * MS, 6500 + 200 * i, 32 * MS) for i in range(-4, 5)])
    whole = part((1, 500 * MS, 7000, 35 * MS))
    seen = long_gaps(12, 500, EVALUATION + PAUSE, by_chance=whole, looked=looked, met=looked)
    assert estimated(seen).eager.ops == pytest.approx(STEPS + 12 * 7000, rel=0.01)


def test_gaps_that_were_looked_at_tell_the_more_the_more_alike_they_are() -> None:
    """Those that had ops when they first were: the others may have had theirs before."""
    stages = estimated(long_gaps(12, 500, UNSURE)).eager
    alike = part(*[(1, 500 * MS, 7000, 35 * MS)] * 8)
    apart = part(*[(1, 500 * MS, 1000, 5 * MS), (1, 500 * MS, 13_000, 65 * MS)] * 4)
    off, errors = [], []
    for looked, met in ((alike, alike), (part((16, 8 * S, 56_000, 280 * MS)), alike), (apart,) * 2):
        found = estimated(long_gaps(12, 500, UNSURE, looked=looked, met=met)).eager
        off.append(abs(found.ops - STEPS - 12 * 7000))
        errors.append(found.ops_error)
    assert off[0] < min(off[1:]) and max(off) < abs(stages.ops - STEPS - 12 * 7000)
    assert errors[0] < min(errors[1:]) and max(errors) <= stages.ops_error


def test_gaps_that_had_no_ops_whenever_they_were_looked_at_are_unlike_others() -> None:
    """Pauses without an evaluation, which are shorter."""
    nothing = part((3, 750 * MS, 0, 0))
    own: list[list[At]] = [[(4, 0)] * 4, *([[(4, 0)] * 4] * 4), *PAUSE]
    slices = part(*[(0.02, 20 * MS, 0, 0)] * 9)
    pauses = long_gaps(7, 250, own, looked=nothing, certain_slices=slices)
    evaluations = long_gaps(8, 500, EVALUATION + PAUSE)
    alone = estimated(evaluations).eager.ops
    assert estimated(evaluations, pauses).eager.ops == pytest.approx(alone)


def test_of_the_last_gap_its_own_slices_tell_more_than_single_others() -> None:
    ended = part((2, S, 2 * 6400, 64 * MS))
    gaps = long_gaps(11, 500, EVALUATION + PAUSE, met=ended, ended=ended)
    slower: list[list[At]] = [[(4, 300)], [(4, 300)], [(8, 600)], [(16, 1200)]]
    eager = estimated(gaps, long_gaps(1, 500, slower, to=CUT)).eager
    assert eager.ops == pytest.approx(STEPS + 11 * 6400 + 2400 + 3200)
    eager = estimated(gaps, long_gaps(1, 500, [], to=CUT)).eager
    assert eager.ops == pytest.approx(STEPS + 12 * 6400)


def test_ops_that_come_evenly_are_as_slices_tell() -> None:
    """Of a gap of which slices are alike, stages tell nothing more; nor where all are as long."""
    even: list[list[At]] = [[(4, 400)], [(4, 350)], [(8, 850)], [(16, 1500)], [(32, 3400)]]
    gaps = long_gaps(12, 64, even)
    without = kind(12, 12 * 64 * MS, octave=gaps.octave, slices=gaps.slices[1])
    assert estimated(gaps).eager.ops == estimated(without).eager.ops
    alone = long_gaps(12, 500, EVALUATION + PAUSE)
    without = kind(12, 6 * S, octave=alone.octave, slices=alone.slices[1])
    assert estimate(observed(alone)).eager.ops == estimate(observed(without)).eager.ops


def test_what_certain_windows_saw_of_a_gaps_beginning_is_itself() -> None:
    """Chance's stand for the rest, where there were enough: other ops come there."""
    begun, later = (
        [Cell("aten::mul", 0, 0, 6400, 32 * MS, {})],
        [Cell("aten::add", 0, 1, 320, MS, {})],
    )
    certain = part((0.064, 64 * MS, 6400, 32 * MS), cells=begun)
    chance = part(*[(0.004, 4 * MS, 40, MS // 8)] * 8, cells=later)
    stages = {(0.0, 64.0 * MS): certain, (64.0 * MS, math.inf): chance}
    gap = kind(1, 512 * MS, octave=28, slices=chance, certain_slices=certain, stages=stages)
    found = estimated(gap).by_name
    assert found["aten::mul"].ops == pytest.approx(6400)
    assert found["aten::add"].ops == pytest.approx(STEPS + 448 * 10)


def test_windows_that_ended_early_where_ops_are_dense() -> None:
    """Of a gap that many of chance met: in three tenths of it ops are dense, and windows short.

    Each stands for a tenth of the gap. By its stages they would count by their own time.
    """
    dense = [(0.02, 20 * MS, 2000, 10 * MS)] * 3  # of 2 ms each, as they are weighed
    sparse = [(0.02, 20 * MS, 20, 10 * MS)] * 7
    stages = {
        (0.0, 512.0 * MS): part(*[(0.002, 2 * MS, 200, MS)] * 3, *sparse),
        (512.0 * MS, math.inf): part(*sparse),
    }
    gap = kind(1, 2 * S, octave=30, slices=part(*dense, *sparse), stages=stages)
    assert estimated(gap).eager.ops == pytest.approx(STEPS + 2 * (30_000 + 700))


def test_ops_take_no_more_than_the_clock_allows() -> None:
    """One that goes on after its stage is booked where it began."""
    long_ops = part((0.004, 4 * MS, 1, 480 * MS), (0.004, 4 * MS, 1, 900 * MS))
    stages = {(0.0, 4.0 * MS): long_ops, (4.0 * MS, math.inf): part((0.4, 400 * MS, 0, 0))}
    gaps = kind(12, 6 * S, octave=28, slices=part((0.4, 408 * MS, 2, 400 * MS)), stages=stages)
    eager = estimated(gaps).eager
    assert eager.ops == pytest.approx(STEPS + 12)
    assert eager.ns == pytest.approx(STEPS * 10_000 + 6 * S)
