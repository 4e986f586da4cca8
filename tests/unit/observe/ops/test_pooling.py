"""How many ops each of several gaps has, of which some are known for sure and others about."""

import pytest
from seen_gaps import S, kind, part

from instrumented_backend.observe.native.structs import Seen
from instrumented_backend.observe.ops.pooling import About, Pooled, pooled, seen_whole
from instrumented_backend.observe.ops.scaled import WHOLE, Group


def about(error: float, *ops: float) -> About:
    return About(len(ops), sum(ops), sum(each * each for each in ops), error)


def found(*known: About) -> Pooled:
    result = pooled(known)
    assert result is not None
    return result


def test_what_differs_by_more_than_it_may_be_off_differs() -> None:
    """Of 8 and 12, each off by 1, the variance is 8: 7 are their own."""
    both = found(about(0.1, 8, 12))
    assert (both.mean, both.between) == pytest.approx((10, 7))
    # Of two that have a variance of 8 each.
    assert both.mean_variance == pytest.approx(8 / 2)


def test_what_hardly_differs_is_alike() -> None:
    both = found(about(0.3, 8, 12))
    assert both.between == 0 and both.mean == pytest.approx(10)
    assert both.mean_variance == pytest.approx(3**2 / 2)


def test_what_is_surer_counts_for_more() -> None:
    """A hundred times as much: the errors are as one to ten."""
    both = found(about(0.02, 100), about(0.2, 110))
    assert both.between == 0 and both.mean == pytest.approx((100 * 100 + 110) / 101)


def test_many_that_are_off_together_tell_no_more_than_that() -> None:
    """A hundred whose mean is off by a tenth, and one that is as well."""
    together = About(100, 11_000, 100 * 110**2, 0.1, bias=0.1)
    both = found(together, about(0.1, 90))
    # Those weigh 1 / 1.01 of what the one does.
    assert both.mean == pytest.approx((110 / 1.01 + 90) / (1 / 1.01 + 1), rel=1e-6)


def test_where_they_differ_each_counts_for_as_much() -> None:
    """However sure it is; and each is itself."""
    known = [about(0.01, 100, 300), about(0.1, 200, 400)]
    all_four = found(*known)
    assert all_four.mean == pytest.approx(250, rel=0.01)
    assert all_four.sum_of(known)[0] == pytest.approx(1000, rel=0.01)
    assert all_four.sum_of(known[1:])[0] == pytest.approx(600, rel=0.02)


def test_those_that_are_alike_have_what_all_have() -> None:
    alike = Pooled(mean=100, mean_variance=4, between=0)
    ops, variance = alike.sum_of([about(0.1, 90, 95), about(0.3, 150)])
    # Off by as much as the mean is, all three.
    assert (ops, variance) == pytest.approx((300, 9 * 4))


def test_a_part_of_what_was_seen_is_surer() -> None:
    all_seen, part = Seen(n=3, ops=60, each_ops2=1400), Seen(n=2, ops=50, each_ops2=1300)
    assert About.of(all_seen, 0.1, but=part) == about(0.1, 10)
    assert About.of(part, 0.1) == about(0.1, 20, 30)


def test_without_any() -> None:
    assert pooled([]) is None and pooled([about(0.1, 0, 0), about(0.1)]) is None


def test_a_loop_that_lasts_for_so_long_has_fewer_ops_where_it_is_seen_whole() -> None:
    """Of 0.5 s, seeing took a tenth: its ops, and so what others have, are off by half of that."""
    near = [Group(1, 28, [kind(10, 5 * S)])]
    one, two = part((1, 0.45 * S, 900, S)), part((1, 0.45 * S, 900, S), (1, 0.45 * S, 900, S))
    assert seen_whole(one.seen, near).error == pytest.approx(0.05)
    assert seen_whole(two.seen, near).error == WHOLE  # evaluations, on a faster machine
    longer = part((1, 0.6 * S, 900, S))
    assert seen_whole(longer.seen, near).error == WHOLE
