"""Extrapolation: by hand-computed sums, and over simulated runs whose truth is known."""

import math
from typing import Any

import pytest
from seen_gaps import REGION, S, kind, observed, part

from instrumented_backend.observe.native.structs import GpuTimeRow
from instrumented_backend.observe.ops.cells import Cell, OnLine
from instrumented_backend.observe.ops.estimate import SEEING, estimate
from instrumented_backend.observe.ops.lines import UNKNOWN, Line
from instrumented_backend.observe.ops.loose import SLOWER
from instrumented_backend.observe.ops.observed import Before, Observed, Part
from instrumented_backend.observe.ops.spread import SKEW, SPREAD


def test_all_that_was_seen_stands_for_itself() -> None:
    found = estimate(observed(kind(10, 1000, part((10, 1000, 20, 400))), whole=True))
    assert found.exact and (found.eager.ops, found.eager.ns) == (20, 400)
    assert found.eager.ops_error == found.eager.ns_error == found.unseen_ns == 0
    assert found.main_ns.ns == 400 and found.other_ns.ns == 0
    assert found.by_name["aten::add"].ops == 20


def test_ops_that_were_lost_are_not_exact() -> None:
    seen = observed(kind(1, 10, part((1, 10, 2, 4))), whole=True)
    seen.times.lost = 1
    assert not estimate(seen).exact


def test_a_static_loop_is_exact() -> None:
    # 3 gaps in a certain window; of the 800 others, 50 in two random ones. 2 ops in each.
    certain = part((3, 300, 6, 30))
    by_chance = part((20, 2000, 40, 200), (30, 3000, 60, 300))
    found = estimate(observed(kind(803, 80300, certain, by_chance)))
    assert found.eager.ops == pytest.approx(1606) and found.eager.ns == pytest.approx(8030)
    assert found.eager.ops_error == 0


def test_certain_windows_stand_for_themselves() -> None:
    # The first 2 steps have 50 ops each. The 98 others, of which 10 were seen, have 3.
    certain = part((2, 200, 100, 80))
    by_chance = part((5, 500, 15, 50), (5, 500, 15, 50))
    found = estimate(observed(kind(100, 10_000, certain, by_chance)))
    assert found.eager.ops == pytest.approx(100 + 98 * 3)
    assert found.eager.ns == pytest.approx(80 + 98 * 10)


def test_certain_windows_help_where_those_of_chance_saw_too_few() -> None:
    # 10 seen for certain, 4 ops each; 2 by chance, 5 each; the 88 left are like the certain.
    certain, by_chance = part((10, 1000, 40, 80)), part((2, 200, 10, 20))
    found = estimate(observed(kind(100, 10_000, certain, by_chance)))
    assert found.eager.ops == pytest.approx(40 + 10 + 88 * 4)


def test_the_first_gap_stands_for_itself() -> None:
    # The first has 500 ops; of the 99 others, 4 were seen in a certain window and none by chance.
    first, certain = part((1, 100, 500, 90)), part((4, 400, 12, 40))
    found = estimate(observed(kind(100, 10_000, certain, first=first)))
    assert found.eager.ops == pytest.approx(500 + 99 * 3)
    only = estimate(observed(kind(100, 10_000, first=first)))
    assert only.eager.ops == pytest.approx(500 * 100)  # nothing else is known
    whole = estimate(observed(kind(5, 500, certain, first=first), whole=True))
    assert whole.exact and whole.eager.ops == 512


def test_positions_in_the_loop_are_scaled_apart() -> None:
    # Of 1000 turns, the first position was seen 10 times with 2 ops, the second 40 with 7.
    first = kind(1000, 100_000, None, part((10, 1000, 20, 50)))
    second = kind(1000, 100_000, None, part((20, 2000, 140, 700), (20, 2000, 140, 700)))
    found = estimate(observed(first, second))
    assert found.eager.ops == pytest.approx(2000 + 7000) and found.eager.ops_error == 0
    assert found.eager.ns == pytest.approx(5000 + 35_000)


def test_positions_of_which_too_few_were_seen_are_taken_together() -> None:
    # Of 4 with 100 gaps each, one gap with 1, 2, 3 and 6 ops was seen: 3 ops for each of the 400.
    # The position that was seen often enough has no part in it.
    sines = [Cell("aten::sin", 0, 1, ops, 10, {}) for ops in (1, 2, 3, 6)]
    rare = [kind(100, 10_000, None, part((1, 100, cell.count, 10), cells=[cell])) for cell in sines]
    often = kind(1000, 100_000, None, part((30, 3000, 600, 60)))
    found = estimate(observed(*rare, often))
    assert found.by_name["aten::sin"].ops == pytest.approx(400 * 3)
    assert found.by_name["aten::add"].ops == pytest.approx(1000 * 20)
    # One that was not seen at all, where no other is rare, is like all: 17 ops in each gap.
    seen = [
        kind(100, 10_000, None, part((3, 300, 6, 10))),
        kind(99, 9900, None, part((33, 1, 606, 1))),
    ]
    known = estimate(observed(*seen))
    found = estimate(observed(kind(10, 1000), *seen))
    assert found.eager.ops == pytest.approx(known.eager.ops + 10 * 17)


def test_a_position_at_another_length_comes_before_other_positions() -> None:
    # 3 ops in each gap of its own edge, one octave shorter; of the one that is longer only one was
    # seen; 50 elsewhere, in its own.
    shorter = kind(20, 10_000, None, part((5, 2500, 15, 10)), octave=9, edge=7)
    longer = kind(1, 3000, None, part((1, 3000, 3, 10)), octave=11, edge=7)
    elsewhere = kind(20, 30_000, None, part((5, 7500, 250, 10)))
    found = estimate(observed(kind(4, 6000, edge=7), shorter, longer, elsewhere))
    assert found.eager.ops == pytest.approx(20 * 3 + 3 + 20 * 50 + 4 * 3)


def test_octaves_are_scaled_apart() -> None:
    # 1000 short gaps with 2 ops, 10 seen; 20 long ones with 50 ops, 5 seen.
    short = kind(1000, 1000 * 1500, None, part((5, 7500, 10, 50), (5, 7500, 10, 50)))
    longer = kind(20, 20 * 6000, None, part((5, 30_000, 250, 1000)), octave=12)
    found = estimate(observed(short, longer))
    assert found.eager.ops == pytest.approx(2000 + 1000)


@pytest.mark.parametrize("regular", [True, False])
def test_kinds_that_lengths_tell_apart_badly_are_counted_by_turns(regular: bool) -> None:
    """Ten gaps in a window, with 4 or 10 ops in turn. Where one is seen, it takes longer."""
    in_turn = [(10, 1000, 70, 100)] * 8 if regular else [(10, 1000, n, 100) for n in (40, 100) * 4]
    short = [(5, 400, n, 40) for n in (20, 26) * 4]
    long = [(5, 600, n, 60) for n in (50, 44) * 4]
    beside: Any = {"edge": 1, "all_lengths": part(*in_turn)}
    kinds = [
        kind(1100, 88_000, None, part(*short), octave=6, **beside),
        kind(900, 108_000, None, part(*long), octave=7, **beside),
    ]
    found = estimate(observed(*kinds)).eager
    if regular:
        assert (found.ops, found.ns) == (pytest.approx(2000 * 7), pytest.approx(2000 * 10))
    else:  # windows that differ tell less than lengths
        assert found.ops == pytest.approx(1100 * 23 / 5 + 900 * 47 / 5)
        assert found.ns == pytest.approx(1100 * 8 + 900 * 12)


@pytest.mark.parametrize(
    ("octaves", "ops"),
    [
        ({11: 7, 9: 5, 13: 3}, 7),  # one longer, as windows make them
        ({9: 5, 8: 4, 12: 3}, 5),  # the next shorter
        ({12: 3, 14: 9}, 3),  # the next longer
    ],
)
def test_gaps_that_were_not_seen_are_like_those_of_the_nearest_length(
    octaves: dict[int, int], ops: int
) -> None:
    known = [
        kind(5, 5 << octave, None, part((5, 5 << octave, 5 * n, 5)), octave=octave)
        for octave, n in octaves.items()
    ]
    found = estimate(observed(kind(10, 10 << 10), *known))
    assert found.eager.ops == pytest.approx(sum(5 * n for n in octaves.values()) + 10 * ops)
    assert found.unseen_ns == 0


def test_longer_gaps_that_were_not_seen_may_have_more_ops() -> None:
    # 10 gaps of 1000 ns are like those of 100 ns, with 2 ops each: 20 ops. As many ops as go into
    # their time would be ten times that, 180 more.
    known = kind(5, 500, None, part((5, 500, 10, 50)), octave=6)
    found = estimate(observed(kind(10, 10_000, octave=9), known))
    assert found.eager.ops == pytest.approx(10 + 20)
    assert SPREAD * found.eager.ops_error == pytest.approx(180)
    # Of time, half of what their own 50 + 100 ns of ops leave.
    their = math.hypot((10_000 - 100) / 2, SEEING * (50 + 100))
    assert SPREAD * found.eager.ns_error == pytest.approx(their)


def test_gaps_many_times_as_long_that_were_not_seen_may_be_evaluations() -> None:
    """All of their time may be ops, and small ones, where a step's are dear."""
    step = kind(5, 1_500_000, None, part((5, 1_500_000, 5 * 7, 5 * 200_000)), octave=18)
    found = estimate(observed(kind(4, 120_000_000, octave=24), step))
    assert found.eager.ops == pytest.approx(5 * 7 + 4 * 7)
    assert SPREAD * found.eager.ops_error == pytest.approx(120_000_000 / 10_000)
    assert SPREAD * found.eager.ns_error == pytest.approx(120_000_000 - 4 * 200_000)


def test_short_gaps_are_not_like_one_that_is_a_thousand_times_as_long() -> None:
    """Such as what a snapshot cuts off while a compilation goes on in a gap."""
    known = kind(1, 4 * S, first=part((1, 4 * S, 60_000, 3 * S)), octave=31)
    found = estimate(observed(known, kind(4, 400_000, octave=16)))
    assert found.eager.ops == pytest.approx(60_000 + 60_000 * 400_000 / (4 * S))
    assert found.eager.ns == pytest.approx(3 * S * (1 + 400_000 / (4 * S)))
    # As many small ops as go into their time.
    assert SPREAD * found.eager.ops_error == pytest.approx(40)


def test_what_is_left_of_a_gap_that_was_cut_is_a_piece_of_it() -> None:
    """A snapshot cut it, and so it is none that others of its kind are like."""
    cut = kind(1, 4 * S, first=part((1, 4 * S, 40_000, 3 * S)), octave=31, to=0)
    found = estimate(observed(cut, kind(1, 40_000_000, octave=25)))
    assert found.eager.ops == pytest.approx(40_400)


def test_gaps_like_those_that_took_no_time() -> None:
    """A gap of a forked child can have none, by its clock: what it is like is not known then."""
    known = kind(1, 0, None, part((1, 0, 0, 0)), octave=0)
    found = estimate(observed(kind(10, 10_000, octave=9), known))
    assert found.eager.ops == 0 and SPREAD * found.eager.ops_error == pytest.approx(1)
    assert SPREAD * found.eager.ns_error == pytest.approx(10_000)


def test_gaps_that_nothing_is_like() -> None:
    # Half of them on another thread. All of their time may be ops: two standard errors.
    found = estimate(observed(kind(5, 1000, others=(5, 1000))))
    assert found.eager.ops == 0 and found.unseen_ns == 2000
    assert found.eager.ns_error * SPREAD == pytest.approx(2000)
    assert found.main_ns.ns_error * SPREAD == pytest.approx(1000)
    assert found.other_ns.ns_error * SPREAD == pytest.approx(1000)


def test_what_ran_before_the_first_window_may_be_ops() -> None:
    # 100 ops in gaps of 10 ms, 0.1 ms for each. 20 ms before: 200 more, and all of it in ops.
    seen = kind(10, 10**7, part((10, 10**7, 100, 2 * 10**6)))
    late = observed(seen)
    late.before = Before(unseen_ns=2 * 10**7, compile_ns=S, waited_ns=S)
    found = estimate(late)
    assert not found.exact
    assert (found.eager.ops, found.eager.ns, found.unseen_ns) == (100, 2 * 10**6, 2 * 10**7)
    assert SPREAD * found.eager.ops_error == pytest.approx(200)
    their = math.hypot(2 * 10**7, SEEING * 2 * 10**6)
    assert SPREAD * found.eager.ns_error == pytest.approx(their)
    assert SPREAD * found.main_ns.ns_error == pytest.approx(their)
    assert found.other_ns.ns_error == 0


def test_much_time_before_the_first_window_may_be_many_small_ops() -> None:
    # 250 ms: 1000 ops in the 100 that PyTorch may have taken, and one each 10 us in 150: 15,000.
    late = observed(kind(10, 10**7, part((10, 10**7, 100, 2 * 10**6))))
    late.before = Before(unseen_ns=S // 4)
    assert SPREAD * estimate(late).eager.ops_error == pytest.approx(1000 + 15_000)
    # Where no other op was seen, each may be a small one: 10,000 and 15,000.
    late = observed()
    late.before = Before(unseen_ns=S // 4)
    assert SPREAD * estimate(late).eager.ops_error == pytest.approx(25_000)


def test_gaps_to_elsewhere_are_no_likeness() -> None:
    known = kind(5, 500, None, part((5, 500, 10, 50)), to=2)
    assert estimate(observed(kind(5, 500), known)).unseen_ns == 500


def test_no_more_time_than_the_clock_allows() -> None:
    # 2 gaps seen of 10, with 90 ns of ops in each; all 10 took 500 ns.
    found = estimate(observed(kind(10, 500, None, part((1, 100, 1, 90), (1, 100, 1, 90)))))
    assert found.eager.ops == pytest.approx(10) and found.eager.ns == pytest.approx(500)
    long = part((0.1, 0.1 * S, 1, 0.5 * S))  # an op that goes on after its window
    found = estimate(observed(kind(1, S, octave=30, slices=long)))
    assert found.eager.ns <= S


def beside_gpu(seen: Observed, behind: float) -> Observed:
    """It is behind the host for that share of the time."""
    seen.gpu.times = [GpuTimeRow(behind_ns=(0, behind * S), seen_ns=(0, S))]
    return seen


@pytest.mark.parametrize(
    ("behind", "each_ns", "expected"),
    [
        (0.9, 950, 100 * 1000 * 900 / 950),
        (0.4, 950, 100 * 900),  # the GPU waits for the host
        (0.9, 500, 100 * 450),  # what took twice as long was no window's doing
    ],
)
def test_an_op_waits_less_for_the_gpu_where_a_window_slows_the_host_down(
    behind: float, each_ns: int, expected: float
) -> None:
    # 10 gaps seen of 100, which took 1,000 ns each; in windows less, all but 50 ns of it ops.
    window = (5, 5 * each_ns, 15, 5 * min(900, each_ns - 50))
    seen = observed(kind(100, 100_000, None, part(window, window)))
    found = estimate(beside_gpu(seen, behind))
    assert (found.eager.ops, found.eager.ns) == (pytest.approx(300), pytest.approx(expected))


def test_nothing_is_left_that_waits_for_the_gpu() -> None:
    """Windows saw all gaps of two lengths that are alike."""
    beside: Any = {"edge": 1, "all_lengths": part(*[(10, 1000, 70, 100)] * 8)}
    short = part(*[(5, 400, n, 40) for n in (20, 26) * 4])
    long = part(*[(5, 600, n, 60) for n in (50, 44) * 4])
    kinds = [
        kind(40, 8 * 400, None, short, octave=6, **beside),
        kind(40, 8 * 600, None, long, octave=7, **beside),
    ]
    found = estimate(beside_gpu(observed(*kinds), 1.0)).eager
    assert (found.ops, found.ns) == (pytest.approx(8 * 70), pytest.approx(8 * 100))


def without_marks(
    certain: list[tuple[float, float]], random: list[tuple[float, float]]
) -> tuple[Part, Part]:
    """Each window's seconds and ops, of 10 ns each."""
    first, second = (
        part(*((s, s * S, n, 10 * n) for s, n in windows)) for windows in (certain, random)
    )
    return first, second


def test_threads_without_marks() -> None:
    # 10 s: 4 ops in 2 s of certain windows; in each of ten random ones 3 in 0.1 s, of 8 s left.
    loose = without_marks([(2, 4)], [(0.1, 3)] * 10)
    found = estimate(observed(loose=loose, elapsed_ns=10 * S))
    assert found.eager.ops == pytest.approx(4 + 240) and found.eager.ns == pytest.approx(2440)
    # Windows are all alike: what is left is chance, the square of 240 by the 30 ops seen; and that
    # threads are slower in them.
    slower = SLOWER * 210 / SPREAD
    assert found.eager.ops_error == pytest.approx(math.hypot(240 / math.sqrt(30), slower))
    assert found.main_ns.ns == 0 and found.other_ns.ns == pytest.approx(2440)


def test_threads_without_marks_beside_one_that_windows_slow() -> None:
    """Of the second that chance's windows lasted, 0.2 s went into seeing the main thread's ops."""
    loose = without_marks([(2, 4)], [(0.1, 3)] * 10)
    windows = part((10, 1000, 75, 10)), part((30, 3000, 225, 30))
    gaps = kind(1000, S, *windows, cost_ns=4 * S // 15)
    found = estimate(observed(gaps, loose=loose, elapsed_ns=10 * S))
    others = 4 + 30 + 30 * 7 / 0.8
    assert found.eager.ops == pytest.approx(1000 * 7.5 + others)


def test_threads_without_marks_of_which_chance_saw_little() -> None:
    """Both kinds of window tell; two errors are at least as much as they are apart."""
    loose = without_marks([(2, 4)], [(1, 3)])
    found = estimate(observed(loose=loose, elapsed_ns=10 * S))
    assert found.eager.ops == pytest.approx(4 + 8 * 7 / 3)
    assert SPREAD * found.eager.ops_error >= 8 * (3 - 2)
    # Chance saw nothing: as many again, or none.
    loose = without_marks([(2, 4)], [])
    found = estimate(observed(loose=loose, elapsed_ns=10 * S))
    assert found.eager.ops == pytest.approx(4 + 16)
    assert SPREAD * found.eager.ops_error >= 16


def test_threads_that_wait_while_the_main_one_compiles() -> None:
    """4 ops in the 0.5 s of two that were no compilation, or in all of the two."""
    seen = observed(loose=without_marks([(2, 4)], []), elapsed_ns=10 * S)
    seen.times.main_compile_ns = int(1.5 * S)
    found = estimate(seen)
    assert found.eager.ops == pytest.approx(4 + 8 / 0.5 * 4)
    assert SPREAD * found.eager.ops_error >= 8 / 0.5 * 4 - 8 / 2 * 4


def test_a_compilation_before_the_first_window_was_not_in_it() -> None:
    """4 ops in the 1.5 s of two that were no compilation, or in all of the two."""
    seen = observed(loose=without_marks([(2, 4)], []), elapsed_ns=10 * S)
    seen.times.main_compile_ns = int(5.5 * S)
    seen.before = Before(compile_ns=5 * S)
    assert estimate(seen).eager.ops == pytest.approx(4 + 8 / 1.5 * 4)


def test_threads_without_marks_that_a_window_saw_to_the_end() -> None:
    loose = without_marks([(10, 40)], [])
    found = estimate(observed(loose=loose, elapsed_ns=10 * S))
    assert (found.eager.ops, found.eager.ops_error) == (40, 0)


def test_the_spread() -> None:
    # Three windows of 2 gaps with 2, 4 and 6 ops: 2 a gap; residuals -2, 0, 2, squares 8.
    # 6 of 60 were seen: factor 10, 0.9 of them were not. Student's t of 2 windows more than one
    # is 4.3, to be two errors: variance (10 * 4.3 / 2 * SKEW)² * 8 * 3 / 2 * 0.9.
    by_chance = part((2, 200, 2, 20), (2, 200, 4, 40), (2, 200, 6, 60))
    found = estimate(observed(kind(60, 6000, None, by_chance)))
    assert found.eager.ops == pytest.approx(120)
    variance = (10 * 4.3 / 2 * SKEW) ** 2 * 8 * 3 / 2 * 0.9
    assert found.eager.ops_variance == pytest.approx(variance)
    assert found.eager.ns_variance == pytest.approx(
        100 * variance + (SEEING * 1200 / SPREAD) ** 2  # 10 ns each
    )
    assert found.by_name["aten::add"].ops_variance >= variance * 0.99


def test_windows_of_different_lengths_are_as_good_as_fewer_alike() -> None:
    # 1, 1 and 8 gaps: 10² / 66 = 1.52 windows, taken for 2. Residuals of 3 ops a gap (30 / 10):
    # 3 - 3, 6 - 3 and 21 - 24: squares 18. Factor 2, of which half was not seen.
    by_chance = part((1, 100, 3, 3), (1, 100, 6, 6), (8, 800, 21, 21))
    found = estimate(observed(kind(20, 2000, None, by_chance)))
    expected = (2 * 12.7 / 2 * SKEW) ** 2 * 18 * 2 * 0.5
    assert found.eager.ops_variance == pytest.approx(expected)


def test_one_window_tells_how_gaps_differ() -> None:
    # 1 op and 5 in two gaps of one window, 20 like them: 60 ops; the gaps' own variance is 8, of
    # 20 more it is 20² * 8 / 2, and as Student's t has it for two.
    mixed = part((2, 200, 6, 60))
    mixed.seen.each_ops2 = 1 + 25
    found = estimate(observed(kind(22, 2200, mixed)))
    assert found.eager.ops == pytest.approx(6 + 60)
    student = 12.7 / 2 * SKEW
    assert found.eager.ops_error == pytest.approx(student * math.sqrt(20**2 * 8 / 2))


def cells(name: str, count: int) -> list[Cell]:
    return [Cell(name, 0, 0, count, 10 * count, {})]


STEPS = part((60, 60 * 150_000, 600, 6000), cells=cells("aten::add", 600))
HELD_UP = part((1, 4_000_000, 10, 100), cells=cells("aten::add", 10))
EVALUATION = part((1, 4_000_000, 266, 2660), cells=cells("aten::gelu", 266))


def test_steps_held_up_may_be_evaluations() -> None:
    """Of five gaps one was seen, a step; of three that are longer one, which was an evaluation."""
    steps = kind(600, 90_000_000, None, STEPS, octave=17, edge=1)
    held_up = kind(5, 20_000_000, None, HELD_UP, octave=21, edge=1)
    evaluations = kind(3, 15_000_000, EVALUATION, octave=22, edge=1)
    found = estimate(observed(steps, held_up, evaluations))
    assert found.by_name["aten::gelu"].ops == 3 * 266
    # There may be more of them by four, or fewer by two.
    assert SPREAD * found.by_name["aten::gelu"].ops_error > 2 * 266
    assert SPREAD * found.eager.ops_error > 2 * 256


def test_evaluations_of_a_length_of_their_own_are_exact() -> None:
    steps = kind(600, 90_000_000, None, STEPS, octave=17, edge=1)
    evaluations = kind(30, 150_000_000, EVALUATION, octave=22, edge=1)
    found = estimate(observed(steps, evaluations))
    assert found.by_name["aten::gelu"].ops == 30 * 266
    assert SPREAD * found.by_name["aten::add"].ops_error < 1


def test_data_loading_is_apart() -> None:
    loading = kind(4, 400, part((4, 400, 8, 80)), mark=1, others=(4, 100))
    found = estimate(observed(loading, kind(1, 100, part((1, 100, 1, 10)))))
    assert found.data_ns == (400, 100)
    assert found.main_ns.ns == 10 and found.other_ns.ns == 0


def test_time_on_other_threads() -> None:
    # A quarter of the gaps' time was on the main thread.
    found = estimate(observed(kind(1, 100, part((4, 400, 8, 80)), others=(3, 300))))
    assert (found.main_ns.ns, found.other_ns.ns) == (20, 60)


def test_lines_share_an_ops_count_by_weight() -> None:
    here, there = Line("a.py", 1, "f"), Line("a.py", 2, "f")
    # Weights 30 and 10: three quarters of the ops; times 60 and 140: 30 % of the time.
    cells = [
        Cell("aten::add", 0, 0, 100, 1000, {0: OnLine(30.0, 60.0, 4.0), 1: OnLine(10.0, 140.0)}),
        Cell("aten::mul", 0, 1, 5, 50, {}),
        Cell("aten::sub", 0, 2, 5, 50, {7: OnLine(1.0, 1.0)}),  # a line forgotten since
    ]
    seen = observed(kind(10, 5000, part((10, 5000, 110, 1100), cells=cells)), lines=[here, there])
    found = estimate(seen)
    assert {key: (sums.ops, sums.ns) for key, sums in found.by_line.items()} == {
        ("aten::add", here): (75, pytest.approx(300)),
        ("aten::add", there): (25, pytest.approx(700)),
        ("aten::mul", UNKNOWN): (5, 50),
        ("aten::sub", UNKNOWN): (5, 50),
    }
    # A variance of 4, where 40 are 100.
    assert found.by_line["aten::add", here].ops_variance == pytest.approx(4 * 2.5**2)
    places = {key: (sums.ops, sums.ns) for key, sums in found.by_place.items()}
    assert places[REGION, here] == (75, pytest.approx(300))
    assert places[REGION, UNKNOWN] == (10, 100)
