"""Ops' time where gaps take longer at one time than at another, and windows met more of the one."""

import pytest
from seen_gaps import kind, observed, part

from instrumented_backend.observe.ops.estimate import estimate
from instrumented_backend.observe.ops.observed import Part
from instrumented_backend.observe.ops.spread import MANY, variance_by_time

FAST, SLOW = (10, 1000, 30, 400), (10, 2000, 30, 800)  # of a window: gaps, ns, ops, their ns
HELD_UP = (10, 2000, 30, 400)  # by something else than ops


def test_a_machine_that_is_slower_now_and_then() -> None:
    """Half of 200 gaps, and a quarter of those that were seen: 0.4 of the time is in ops."""
    windows = [FAST, FAST, FAST, SLOW] * 2
    found = estimate(observed(kind(200, 100 * 100 + 100 * 200, None, part(*windows))))
    assert found.eager.ops == pytest.approx(600)
    assert found.eager.ns == pytest.approx(0.4 * 30_000)


def test_gaps_that_something_holds_up() -> None:
    """They have as many ops, which take as long as those of the others."""
    windows = [FAST, FAST, FAST, HELD_UP] * 2
    found = estimate(observed(kind(200, 100 * 100 + 100 * 200, None, part(*windows))))
    assert found.eager.ns == pytest.approx(200 * 40)


def test_a_few_windows_do_not_tell() -> None:
    windows = [FAST, SLOW, *[FAST] * (MANY - 3)]
    found = estimate(observed(kind(200, 100 * 100 + 100 * 200, None, part(*windows))))
    seen_ns, seen_n = sum(window[3] for window in windows), sum(window[0] for window in windows)
    assert found.eager.ns == pytest.approx(200 * seen_ns / seen_n)


def test_ops_take_no_more_than_their_gaps() -> None:
    """An op may outlast the gap in which it began."""
    fast, slow = (10, 1000, 30, 1050), (10, 2000, 30, 2100)
    found = estimate(observed(kind(200, 30_000, None, part(*[fast, fast, fast, slow] * 2))))
    assert found.eager.ns == pytest.approx(30_000)


def test_it_is_as_uncertain_as_the_share_of_ops_differs() -> None:
    """By how far each window is from 0.43 of its time: twice as far, four times the variance."""

    def windows(apart_ns: float) -> Part:
        mean = 1300 / 3000
        fast, slow = 1000 * mean - apart_ns, 2000 * mean + apart_ns
        return part(*[(10, 1000, 30, fast), (10, 2000, 30, slow)] * 4)

    far, near = (variance_by_time(windows(apart).seen, 5) for apart in (100, 50))
    assert far == pytest.approx(4 * near) and near > 0
    assert variance_by_time(windows(0).seen, 5) == pytest.approx(0, abs=1e-3)
