"""What chance's windows see of long gaps: for how much of these it stands, and when they end."""

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from metering import (
    HOUR_NS,
    LEAD_S,
    RANDOM,
    call,
    kinds_after,
    later,
    names,
    open_ns,
    seen,
    window_by_chance,
)

X = torch.ones(2)
LONG_S = 0.2
LONG_NS = int(1e9 * LONG_S)
MANY = 1_000_000  # ops: seconds of being seen


def slice_with(op_meter: Any, op: Callable[[torch.Tensor], object], times: int) -> None:
    """A window that sees one op of the gap; the one before it stands for so many times as long."""
    before_ns = open_ns(op_meter, RANDOM)
    window = later(lambda: window_by_chance(op_meter, LONG_NS, 0, times=times))
    while open_ns(op_meter, RANDOM) <= before_ns:
        time.sleep(0.001)
    time.sleep(LEAD_S)
    op(X)
    window.join()


def weigh_last(op_meter: Any, times: int) -> None:
    asleep = op_meter.op_meter_awake() - 1  # no other window opens
    window_by_chance(op_meter, LONG_NS, 0, asleep, times=times)


@pytest.mark.parametrize("ends_first", [False, True])
def test_a_slice_weighs_as_much_as_its_window_stands_for(op_meter: Any, ends_first: bool) -> None:
    """Of two that see an op each, one stands for four times as much of the run.

    How much that is, is known when the next window is planned: the gap may be over by then.
    """
    op_meter.op_meter_clear()
    call(op_meter, 1)
    torch.tanh(X)  # it has begun
    slice_with(op_meter, torch.sin, 0)
    slice_with(op_meter, torch.cos, 1)
    if ends_first:
        call(op_meter, 2)
    weigh_last(op_meter, 4)
    if not ends_first:
        call(op_meter, 2)
    (kind,) = kinds_after(seen(op_meter), 1, to=2)
    slices = kind.slices[RANDOM]
    counts = names(slices)
    assert counts["aten::cos"] == pytest.approx(4 * counts["aten::sin"], rel=0.3)
    assert slices.seen.ops == pytest.approx(counts.total())
    assert slices.seen.n == pytest.approx(1e-9 * slices.seen.ns) and slices.seen.windows == 2
    assert counts.total() / slices.seen.n == pytest.approx(1 / LONG_S, rel=0.3)


def test_slices_of_gaps_that_end_before_these_are_weighed(op_meter: Any) -> None:
    """Each window is one draw, however many there were of one kind of gap."""
    op_meter.op_meter_clear()
    draws = 8
    for _ in range(20):  # then the gaps that follow are in one position of a loop
        for key in (1, 2):
            call(op_meter, key)
    for _ in range(draws):
        call(op_meter, 1)
        torch.tanh(X)
        slice_with(op_meter, torch.sin, 1)
        call(op_meter, 2)
    weigh_last(op_meter, 1)
    kinds = [kind.slices[RANDOM].seen for kind in kinds_after(seen(op_meter), 1, to=2)]
    slices = [each for each in kinds if each.n]
    assert len(slices) < draws == sum(each.windows for each in slices)
    assert sum(each.ops for each in slices) == pytest.approx(draws)


def test_a_window_that_meets_dense_ops_ends_early(op_meter: Any) -> None:
    """Or what comes after these would be seen by none, for as long as that takes to make up for."""
    op_meter.op_meter_clear()
    call(op_meter, 1)
    awake = op_meter.op_meter_awake()
    window = later(lambda: window_by_chance(op_meter, HOUR_NS, 0, awake))
    ended = False
    for _ in range(MANY):
        torch.sin(X)
        ended = not window.is_alive()
        if ended:
            break
    op_meter.op_meter_wake()
    window.join()
    assert ended
