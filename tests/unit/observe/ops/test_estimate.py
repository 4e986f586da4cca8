"""Extrapolation by hand-computed sums."""

import math

import pytest

from instrumented_backend.observe.native.build import Sums
from instrumented_backend.observe.ops.estimate import estimate
from instrumented_backend.observe.ops.lines import UNKNOWN, Line
from instrumented_backend.observe.ops.meter import EagerOps, Observed

KEY = 1  # of a graph's forward: its gaps are 2 (early) and 3 (late)


def sums(**values: float) -> Sums:
    return Sums(**values)


def observed(early: Sums, late: Sums, *entries: EagerOps, whole: bool = False) -> Observed:
    return Observed(list(entries), [Sums(), Sums(), early, late], {}, whole, lost=0)


def test_everything_observed_is_not_extrapolated() -> None:
    found = estimate(
        observed(
            sums(n=3, region_ns=300),
            sums(n=7, region_ns=700),
            EagerOps("aten::add", 2, 0, 3, 30),
            EagerOps("aten::add", 3, 0, 7, 70),
            whole=True,
        ),
        {KEY: 10},
    )
    assert found.exact
    assert (found.calls, found.observed_calls, found.unseen_calls) == (10, 10, 0)
    assert (found.eager_ops, found.eager_ns, found.region_ns) == (10, 100, {KEY: 1000})
    assert found.eager_ops_error == found.eager_ns_error == found.region_ns_error == 0
    assert [(op.op, op.count, op.time_us, op.share_pct) for op in found.eager] == [
        ("aten::add", 10, 0.1, 100.0)
    ]


def test_calls_inside_another_graphs() -> None:
    # 2 of 10 calls that were seen were nested, so that 8 of 40 were; the late 7 stand for 32 - 1.
    seen = observed(sums(n=1, nested=2), sums(n=7), EagerOps("aten::add", 3, 0, 7, 70))
    found = estimate(seen, {KEY: 40})
    assert (found.observed_calls, found.unseen_calls, found.nested) == (10, 0, {KEY: 8})
    assert found.eager_ops == pytest.approx(31)
    never = estimate(observed(sums(nested=5), Sums()), {KEY: 20})
    assert (never.nested, never.unseen_calls) == ({KEY: 20}, 0)


def test_time_that_no_call_explains() -> None:
    # Early: 3 calls, and 2 rounds of 1 s, so 3 s; late: 10 of 70 calls, 0.1 s each, so 7 s.
    early = sums(n=3, rounds=2, round_ns=2e9)
    late = sums(n=10, rounds=9, round_ns=0.9e9)
    seen = Observed([], [Sums(), Sums(), early, late], {}, whole=False, lost=0, elapsed_s=25.0)
    assert estimate(seen, {KEY: 73}).unaccounted_s == pytest.approx(25 - 3 - 7)
    # More calls than that time has room for: two threads.
    assert estimate(seen, {KEY: 1003}).unaccounted_s == 0
    whole = Observed([], seen.gaps, {}, whole=True, lost=0, elapsed_s=25.0)
    assert estimate(whole, {KEY: 13}).unaccounted_s is None


def test_late_calls_stand_for_those_not_observed() -> None:
    # 3 early and 7 late of 73 calls were seen: each late one stands for (73 - 3) / 7 = 10.
    # Early: 50 ops in 100 ns, once. Late: 14 ops in 140 ns, ten times that in the run.
    found = estimate(
        observed(
            sums(n=3, region_ns=3000),
            sums(n=7, region_ns=700),
            EagerOps("aten::zeros", 2, 0, 50, 100),
            EagerOps("aten::add", 3, 0, 14, 140),
        ),
        {KEY: 73},
    )
    assert not found.exact
    assert found.eager_ops == 50 + 140
    assert found.eager_ns == 100 + 1400
    assert found.region_ns == {KEY: 3000 + 7000}
    assert {op.op: op.count for op in found.eager} == {"aten::add": 140, "aten::zeros": 50}


def test_early_calls_alone_stand_for_the_rest() -> None:
    found = estimate(
        observed(sums(n=2, region_ns=20), Sums(), EagerOps("aten::add", 2, 0, 4, 8)), {KEY: 10}
    )
    assert (found.eager_ops, found.eager_ns, found.region_ns) == (20, 40, {KEY: 100})


def test_graphs_that_no_window_saw_are_counted() -> None:
    found = estimate(observed(sums(n=3), sums(n=7)), {KEY: 10, KEY + 1: 5})
    assert found.unseen_calls == 5 and KEY + 1 not in found.region_ns


def test_the_standard_error() -> None:
    # 4 late calls seen of 16 (19 less 3 early): 1, 1, 3, 3 ops. Sum 8, squares 20, mean 2,
    # s² = (20 - 16) / 3 = 4/3. N² s²/n (1 - n/N) = 256 * (4/3) / 4 * (3/4) = 64: error 8.
    found = estimate(
        observed(sums(n=3), sums(n=4, ops=8, ops2=20), EagerOps("aten::add", 3, 0, 8, 80)),
        {KEY: 19},
    )
    assert found.eager_ops == 32
    assert found.eager_ops_error == pytest.approx(8.0)


def test_one_call_has_no_spread_that_could_be_known() -> None:
    found = estimate(observed(sums(n=1), Sums(), EagerOps("aten::add", 2, 0, 1, 1)), {KEY: 2})
    assert math.isinf(found.eager_ops_error)


def test_lines_share_an_ops_count_by_weight() -> None:
    here, there = Line("a.py", 1, "f"), Line("a.py", 2, "f")
    seen = observed(
        sums(n=3),
        Sums(),
        EagerOps("aten::add", 2, 0, 100, 1000),
        EagerOps("aten::mul", 2, 0, 5, 50),
    )
    # Weights 30 and 10: three quarters of the ops; times 60 and 140: 30 % of the time.
    seen.lines["aten::add", 2, 0] = {here: [30.0, 60.0], there: [10.0, 140.0]}
    found = estimate(seen, {KEY: 3})
    rows = {(row.op, row.line): (row.count, row.time_us) for row in found.missing}
    assert rows == {
        ("aten::add", 1): (75, pytest.approx(0.3)),
        ("aten::add", 2): (25, pytest.approx(0.7)),
        ("aten::mul", UNKNOWN.line): (5, 0.05),
    }
    assert sum(row.share_pct for row in found.missing) == pytest.approx(100)


def test_a_line_that_was_met_is_not_met_0_times() -> None:
    here, there = Line("a.py", 1, "f"), Line("a.py", 2, "f")
    seen = observed(sums(n=2), Sums(), EagerOps("aten::add", 2, 0, 2, 1000))
    # The first op stands for itself, the second, sampled by chance, for four.
    seen.lines["aten::add", 2, 0] = {here: [1.0, 900.0], there: [4.0, 400.0]}
    assert [row.count for row in estimate(seen, {KEY: 2}).missing] == [1, 2]


@pytest.mark.parametrize("time_ns", [701.0521475786843, 773.4676639321585])
def test_the_share_of_a_lone_op_is_exactly_100(time_ns: float) -> None:
    assert 100 * time_ns / time_ns != 100, "or this time shows nothing"
    found = estimate(
        observed(Sums(), sums(n=3), EagerOps("aten::add", 3, 0, 9, time_ns), whole=True), {KEY: 3}
    )
    assert [op.share_pct for op in found.eager] == [100]
    assert [op.share_pct for op in found.missing] == [100]


def test_ops_by_the_region_before_them_and_their_line() -> None:
    # 10 ops in 100 ns, of which samples found 3 in 4 on one line, with 1 in 2 of the time.
    one, other = Line("m.py", 1, "f", 1), Line("m.py", 2, "f", 1)
    seen = observed(sums(n=3), sums(n=7), EagerOps("aten::add", 3, 0, 10, 100), whole=True)
    seen.lines["aten::add", 3, 0] = {one: [3.0, 50.0], other: [1.0, 50.0]}
    found = estimate(seen, {KEY: 10})
    assert found.by_place == {(KEY, one): [7.5, 50.0], (KEY, other): [2.5, 50.0]}
