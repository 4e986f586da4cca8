"""What the native part sees in windows: whole gaps, and slices of long ones."""

import functools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from metering import (
    CERTAIN,
    HOUR_NS,
    LEAD_NS,
    LEAD_S,
    RANDOM,
    call,
    end_window,
    gaps,
    kinds_after,
    later,
    names,
    open_ns,
    seen,
    whole_after,
    window_by_chance,
)
from torch.utils._python_dispatch import TorchDispatchMode

from instrumented_backend.observe.native import structs
from instrumented_backend.observe.ops.observed import Kind
from instrumented_backend.observe.ops.scaled import LONG, UNLIKE, together
from instrumented_backend.observe.ops.work import done

X = torch.ones(2)
LONG_S = 0.3  # longer than a gap that is seen whole
LONG_OCTAVE = 28
MAX_POSITIONS = 4096


def test_a_gap_that_began_before_a_window_is_not_seen_whole(op_meter: Any) -> None:
    call(op_meter, 1)
    torch.sin(X)
    op_meter.op_meter_open(False)
    torch.sin(X)
    call(op_meter, 2)
    torch.sin(X)
    call(op_meter, 3)
    found = seen(op_meter)
    assert gaps(found)[(1,), 2] == 1
    assert whole_after(found, 1) == (0, 0) and whole_after(found, 2) == (1, 1)


def test_what_went_into_seeing_ops_is_known_of_their_gaps(op_meter: Any) -> None:
    call(op_meter, 1)
    torch.sin(X)
    call(op_meter, 2)
    op_meter.op_meter_open(False)
    torch.sin(X)  # in a gap that is seen in slices
    call(op_meter, 3)
    torch.sin(X)
    call(op_meter, 4)
    found = seen(op_meter)
    assert [kind.cost_ns for kind in kinds_after(found, 1)] == [0]
    for region in (2, 3):
        (kind,) = kinds_after(found, region)
        assert 0 < kind.cost_ns <= sum(kind.ns)


def test_a_window_that_is_to_open_again_looks_for_the_loop_again(op_meter: Any) -> None:
    op_meter.op_meter_open(False)
    first = done(op_meter).first
    for _ in range(3):
        call(op_meter, 1)
    assert done(op_meter).first == first
    op_meter.op_meter_open(False)
    assert done(op_meter).first == done(op_meter).marks == first + 3
    torch.sin(X)
    call(op_meter, 1)
    assert sum(names(*kind.wholes)["aten::sin"] for kind in kinds_after(seen(op_meter), 1)) == 1


def test_a_window_that_takes_the_gap_under_way_for_a_whole_one(op_meter: Any) -> None:
    call(op_meter, 1)
    op_meter.op_meter_open(True)
    torch.sin(X)
    call(op_meter, 2)
    assert whole_after(seen(op_meter), 1) == (1, 1)


def test_a_gap_is_seen_whole_although_the_window_ends(op_meter: Any) -> None:
    op_meter.op_meter_open(False)
    call(op_meter, 1)
    torch.sin(X)
    waits = end_window(op_meter)
    torch.sin(X)
    torch.cos(X)
    call(op_meter, 2)
    waits.join()
    torch.sin(X)
    call(op_meter, 3)
    found = seen(op_meter)
    assert whole_after(found, 1) == (1, 3) and whole_after(found, 2) == (0, 0)
    (kind,) = kinds_after(found, 1)
    assert names(*kind.wholes) == {"aten::sin": 2, "aten::cos": 1}
    assert kind.first.seen.ns == kind.own_ns < sum(kind.ns)


def test_a_window_that_nothing_waits_for_closes_as_it_ends(op_meter: Any) -> None:
    op_meter.op_meter_open(False)
    window = op_meter.op_meter_end()
    op_meter.op_meter_finish(window, HOUR_NS, op_meter.op_meter_awake())
    call(op_meter, 1)
    torch.sin(X)
    assert whole_after(seen(op_meter), 1) == (0, 0)


def test_waits_are_ended_early(op_meter: Any) -> None:
    awake = op_meter.op_meter_awake()
    op_meter.op_meter_open(False)
    call(op_meter, 1)
    waiting = [
        end_window(op_meter),
        later(lambda: op_meter.op_meter_wait(HOUR_NS, awake)),
        later(lambda: window_by_chance(op_meter, 1, 1, awake, wait_ns=HOUR_NS)),
    ]
    op_meter.op_meter_wake()
    for thread in waiting:
        thread.join()
    assert op_meter.op_meter_awake() == awake + 1


def test_a_window_by_chance(op_meter: Any) -> None:
    awake = op_meter.op_meter_awake()
    thread = later(lambda: window_by_chance(op_meter, 50_000_000, HOUR_NS, awake))
    while thread.is_alive():
        call(op_meter, 1)
        torch.sin(X)
    found = seen(op_meter)
    n, ops = whole_after(found, 1, RANDOM)
    assert n == ops > 0 and whole_after(found, 1) == (0, 0)
    assert n <= gaps(found)[(1,), 1]
    kinds = kinds_after(found, 1, 1)
    for kind in kinds:  # all lengths of its edge, but for what is seen in slices elsewhere
        of_edge = [other for other in kinds if other.edge == kind.edge and other.octave < LONG]
        whole = [other.whole[RANDOM].seen for other in of_edge]
        assert kind.by_chance.n == sum(seen.n for seen in whole)
        assert kind.by_chance.ops == sum(seen.ops for seen in whole)
    windows = {kind.whole[RANDOM].seen.windows for kind in kinds}
    assert windows <= {0, 1}
    assert 0 < found.times.loose[RANDOM].ns <= 50_000_000


def test_a_certain_window_takes_the_place_of_one_by_chance(op_meter: Any) -> None:
    awake = op_meter.op_meter_awake()
    thread = later(lambda: window_by_chance(op_meter, HOUR_NS, HOUR_NS, awake))
    while not seen(op_meter).times.loose[RANDOM].ns:
        time.sleep(0.001)
    op_meter.op_meter_open(False)
    thread.join()
    call(op_meter, 1)
    torch.sin(X)
    found = seen(op_meter)
    assert whole_after(found, 1) == (1, 1)
    # And while it is there, no other opens.
    window_by_chance(op_meter, HOUR_NS, HOUR_NS)


def test_a_long_gap_is_seen_in_slices(op_meter: Any) -> None:
    call(op_meter, 1)
    torch.sin(X)  # not seen

    def ops() -> None:
        for _ in range(10):
            torch.sin(X)
        torch.cos(X)

    for _ in range(2):
        awake = op_meter.op_meter_awake()
        before = open_ns(op_meter, RANDOM)
        thread = later(lambda awake=awake: window_by_chance(op_meter, HOUR_NS, 0, awake))
        while open_ns(op_meter, RANDOM) <= before:
            time.sleep(0.001)
        time.sleep(LEAD_S)
        ops()
        op_meter.op_meter_wake()
        thread.join()
        torch.tanh(X)
    time.sleep(LONG_S)
    call(op_meter, 2)
    found = seen(op_meter)
    (kind,) = kinds_after(found, 1)
    slices = kind.slices[RANDOM]
    assert kind.octave >= LONG_OCTAVE and kind.whole[RANDOM].seen.n == 0
    assert names(slices) == pytest.approx({"aten::sin": 20, "aten::cos": 2})
    assert slices.seen.ops == pytest.approx(22) and slices.seen.windows == 2
    assert slices.seen.ops2 == pytest.approx(2 * 11**2)
    assert slices.seen.n == pytest.approx(1e-9 * slices.seen.ns)
    assert 0 < slices.seen.op_ns <= slices.seen.ns < sum(kind.ns)


def test_what_a_slice_begins_with_is_left_out(op_meter: Any) -> None:
    """Its first ops take longer to see than what is taken off for that."""
    ops = left_out = 0
    call(op_meter, 1)
    while not left_out:
        before_ns = open_ns(op_meter, CERTAIN)
        op_meter.op_meter_open(False)
        for _ in range(10_000):
            torch.sin(X)
            ops += 1
            left_out += open_ns(op_meter, CERTAIN) < before_ns + LEAD_NS
        op_meter.op_meter_close()
    time.sleep(LONG_S)
    call(op_meter, 2)
    (kind,) = kinds_after(seen(op_meter), 1)
    slices = kind.slices[CERTAIN]
    assert 0 < slices.seen.ops <= ops - left_out


class Within(TorchDispatchMode):
    """Runs ``body`` inside each op."""

    def __init__(self, body: Callable[[], object]) -> None:
        super().__init__()
        self.body = body

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.body()
        return func(*args, **(kwargs or {}))


def test_an_op_before_a_slice_that_goes_on_after_its_window(op_meter: Any) -> None:
    """It is left out there, too: the slice's time is without it."""
    began_ns = 0.0

    def close() -> None:
        nonlocal began_ns
        began_ns = open_ns(op_meter, CERTAIN)
        time.sleep(0.002)
        op_meter.op_meter_close()

    with Within(close):
        while not 0 < began_ns < LEAD_NS:
            op_meter.op_meter_clear()
            call(op_meter, 1)
            op_meter.op_meter_open(False)
            torch.sin(X)
    time.sleep(LONG_S)
    call(op_meter, 2)
    (kind,) = kinds_after(seen(op_meter), 1)
    assert kind.slices[CERTAIN].seen.ns > 0 and kind.slices[CERTAIN].seen.ops == 0


def test_an_op_that_ends_before_the_next_windows_slice_begins(op_meter: Any) -> None:
    def next_window() -> None:
        time.sleep(0.002)
        op_meter.op_meter_close()
        op_meter.op_meter_open(False)

    call(op_meter, 1)
    op_meter.op_meter_open(False)
    time.sleep(LEAD_S)
    with Within(next_window):
        torch.sin(X)
    time.sleep(0.002)
    op_meter.op_meter_close()
    time.sleep(LONG_S)
    call(op_meter, 2)
    (kind,) = kinds_after(seen(op_meter), 1)
    assert names(kind.slices[CERTAIN]) == {"aten::sin": 1}


def test_a_compilation_does_not_make_a_gap_a_long_one(op_meter: Any) -> None:
    """Where gaps that are long are cut, for a snapshot, one that is compiled in is not."""
    call(op_meter, 1)
    op_meter.op_meter_quiet(1, True, 0)
    for _ in range(3):
        time.sleep(LONG_S)
        op_meter.op_meter_settle(int(1e9 * LONG_S))
    op_meter.op_meter_quiet(-1, True, 0)
    call(op_meter, 2)
    assert gaps(seen(op_meter))[(1,), 2] == 1
    assert gaps(seen(op_meter))[(1,), 0] == 0  # no piece of it


@pytest.mark.parametrize("chosen", [CERTAIN, RANDOM])
def test_an_op_that_goes_on_after_its_window(op_meter: Any, chosen: int) -> None:
    """It began in it, and counts: or long ops would be missed."""
    inside, closed = threading.Event(), threading.Event()

    class Slow(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            inside.set()
            assert closed.wait(600)
            return grad

    def run() -> None:
        Slow.apply(torch.ones(1, requires_grad=True)).backward(torch.ones(1))

    closed.set()
    run()  # the first takes long
    inside.clear()
    closed.clear()
    call(op_meter, 1)
    awake = op_meter.op_meter_awake()

    def window() -> None:
        thread = later(lambda: window_by_chance(op_meter, HOUR_NS, 0, awake))
        assert inside.wait(600)
        op_meter.op_meter_wake()
        thread.join()
        op_meter.op_meter_close()
        time.sleep(LONG_S)
        closed.set()

    if chosen == CERTAIN:
        op_meter.op_meter_open(False)
    thread = later(window)
    while chosen == RANDOM and not open_ns(op_meter, RANDOM):
        time.sleep(0.001)
    time.sleep(0.02)
    run()
    thread.join()
    call(op_meter, 2)
    (kind,) = kinds_after(seen(op_meter), 1)
    slices = kind.slices[chosen]
    found = names(slices)
    assert found["SlowBackward"] == pytest.approx(1)
    assert slices.seen.ops == pytest.approx(found.total()) and slices.seen.windows == 1
    assert slices.seen.op_ns >= LONG_S * 1e9
    assert slices.seen.op_ns == pytest.approx(sum(cell.time_ns for cell in slices.cells))
    assert kind.looked.n == (chosen == CERTAIN) and kind.looked.op_ns <= kind.looked.ns


def test_a_short_gap_is_not_seen_in_slices(op_meter: Any) -> None:
    """On a busy machine one may be long: again, until one is not."""
    short: list[Kind] = []
    while not short:
        call(op_meter, 1)
        op_meter.op_meter_open(False)
        torch.sin(X)
        op_meter.op_meter_close()
        call(op_meter, 2)
        short = [kind for kind in kinds_after(seen(op_meter), 1, to=2) if kind.octave < UNLIKE]
    for kind in short:
        assert all(part.seen.n == 0 and not part.cells for part in (*kind.wholes, *kind.slices))


def test_positions_in_a_loop_are_apart(op_meter: Any) -> None:
    """The same graph twice in each turn: after its first call one op, after its second two."""
    op_meter.op_meter_open(False)
    for _ in range(20):
        call(op_meter, 1)
        torch.sin(X)
        call(op_meter, 1)
        torch.sin(X)
        torch.cos(X)
        call(op_meter, 2)
    found = seen(op_meter)
    assert whole_after(found, 1) == (40, 60)
    to_itself, to_the_next = (
        {
            kind.whole[CERTAIN].seen.ops / kind.whole[CERTAIN].seen.n
            for kind in kinds_after(found, 1, to)
            if kind.whole[CERTAIN].seen.n
        }
        for to in (1, 2)
    )
    assert to_itself == {1} and to_the_next == {2}


def test_positions_with_the_same_ends_are_apart(op_meter: Any) -> None:
    """From one call to the next of the same graph, with other graphs before them."""
    op_meter.op_meter_open(False)
    for _ in range(20):
        for before, ops in ((2, 1), (3, 5)):
            call(op_meter, before)
            call(op_meter, 1)
            for _ in range(ops):
                torch.sin(X)
            call(op_meter, 1)
    kinds = kinds_after(seen(op_meter), 1, 1)
    assert sum(sum(kind.n) for kind in kinds) == 40
    means = {
        kind.whole[CERTAIN].seen.ops / kind.whole[CERTAIN].seen.n
        for kind in kinds
        if kind.whole[CERTAIN].seen.n
    }
    assert means == {1, 5}


def test_the_first_gap_is_apart(op_meter: Any) -> None:
    op_meter.op_meter_open(False)
    for turn in range(30):
        call(op_meter, 1)
        torch.sin(X)
        if turn == 0:
            torch.cos(X)
    call(op_meter, 1)
    kinds = kinds_after(seen(op_meter), 1, 1)
    assert names(*[kind.first for kind in kinds])["aten::cos"] == 1
    assert names(*[kind.whole[CERTAIN] for kind in kinds])["aten::cos"] == 0


def test_too_many_positions_are_told_apart_by_their_mark_only(op_meter: Any) -> None:
    """Calls in an order that never repeats: all are counted, and memory does not grow."""
    draw, before = random.Random(0), 0
    expected: Counter[tuple[tuple[int], int]] = Counter()
    for _ in range(60_000):
        call(op_meter, key := draw.randint(1, 8))
        expected[(before,), key] += 1
        before = key
    expected[(before,), 0] = 1  # read in the middle of it
    found = seen(op_meter)
    assert gaps(found) == expected
    assert len(found.kinds) < 2 * MAX_POSITIONS


def test_a_gap_weighs_as_much_as_its_window_stands_for(op_meter: Any) -> None:
    """In one window each gap has an op, in another, that stands for three times as much, three."""
    gaps_seen = []
    for number, times in enumerate((1, 3)):
        window = later(functools.partial(window_by_chance, op_meter, 10**7, HOUR_NS, times=number))
        while window.is_alive():
            call(op_meter, 1)
            _ = [torch.sin(X) for _ in range(times)]
        if number == 1:
            op_meter.op_meter_window(0, 0, 3 * 10**7, 0, 0, 0, op_meter.op_meter_awake() - 1)
        kinds = kinds_after(seen(op_meter), 1, 1)
        part = together([kind.whole[RANDOM] for kind in kinds if kind.octave < LONG])
        gaps_seen.append(part.seen.n)
    first, second = gaps_seen[0], gaps_seen[1] - gaps_seen[0]
    by_chance = structs.Seen()
    for of_edge in {kind.edge: kind.by_chance for kind in kinds}.values():
        by_chance.add(of_edge)
    weight = first / (by_chance.weight * (first + second) - second)  # the first's is 1
    assert 3 < weight < 3 * 4  # three quarters of it may have gone into seeing ops
    of_second = weight * second / (first + weight * second)
    assert part.turns["aten::sin", 0] == pytest.approx(part.seen.n)
    assert part.turns["aten::sin", 2] == pytest.approx(part.seen.n * of_second)
    assert part.seen.ops == pytest.approx(part.seen.n * (1 + 2 * of_second))
    assert by_chance.ops / by_chance.n == pytest.approx(1 + 2 * of_second)
