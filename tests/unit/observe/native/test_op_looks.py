"""What windows see of gaps that are unlike all that was seen before, such as evaluations."""

import threading
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from metering import (
    CERTAIN,
    HOUR_NS,
    RANDOM,
    call,
    end_window,
    kinds_after,
    later,
    names,
    open_ns,
    seen,
)

from instrumented_backend.observe.native import structs
from instrumented_backend.observe.ops.scaled import FEW
from instrumented_backend.observe.ops.work import EVENT_S, done, spent_s

X = torch.ones(2)
LONG_S = 0.3  # longer than a gap that is seen whole
LONG_OCTAVE = 28
OPS = 30_000  # of an evaluation
MAY_COST = 0.8  # of what is left, one that is seen to its end


def steps(op_meter: Any) -> None:
    """Three gaps from one call to the next are seen whole, each with an op."""
    op_meter.op_meter_open(False)
    for _ in range(3):
        call(op_meter, 1)
        torch.sin(X)
    ending = end_window(op_meter)
    call(op_meter, 1)
    ending.join()


def looking(op_meter: Any, most_ns: int) -> threading.Thread:
    """Until woken, at what is unlike all that was seen; chance's window is an hour away."""
    awake, look_ns = op_meter.op_meter_awake(), 1_000_000
    return later(lambda: op_meter.op_meter_window(HOUR_NS, 1, 1, 1, look_ns, most_ns, awake))


def until_looked_at(op_meter: Any) -> None:
    ops = done(op_meter).ops
    while done(op_meter).ops == ops:
        torch.cos(X)


def total(several: Iterable[structs.Seen]) -> structs.Seen:
    of_all = structs.Seen()
    for each in several:
        of_all.add(each)
    return of_all


def ops_in_slices(op_meter: Any) -> float:
    return total(kind.slices[CERTAIN].seen for kind in seen(op_meter).kinds).ops


def number_looked_at(op_meter: Any) -> float:
    return total(kind.looked for kind in seen(op_meter).kinds).n


def woken(op_meter: Any, thread: threading.Thread) -> None:
    op_meter.op_meter_wake()
    thread.join()


def look_at(op_meter: Any, number: int) -> None:
    """At gaps with many ops, of which is then known how many; from the second on to their end."""
    thread = looking(op_meter, HOUR_NS)
    while total(kind.looked for kind in seen(op_meter).kinds if kind.looked.ops).n < number:
        call(op_meter, 1)
        until_looked_at(op_meter)
        for _ in range(5_000):
            torch.cos(X)
        call(op_meter, 2)
    call(op_meter, 1)
    woken(op_meter, thread)


def test_a_gap_that_is_unlike_all_that_was_seen(op_meter: Any) -> None:
    """Windows see slices of it, if they may, and not for ever."""
    steps(op_meter)
    thread = looking(op_meter, HOUR_NS)
    looked_at = 0
    while looked_at < 2:  # a window that is held up may see nothing
        before = ops_in_slices(op_meter)
        until_looked_at(op_meter)
        for _ in range(1_000):  # a window's first ops are in no slice
            torch.cos(X)
        time.sleep(LONG_S)  # until the window is over
        call(op_meter, 2)
        call(op_meter, 1)
        looked_at += ops_in_slices(op_meter) > before
    woken(op_meter, thread)
    opened_ns = done(op_meter).open_ns
    thread = looking(op_meter, -1)
    time.sleep(LONG_S)
    woken(op_meter, thread)
    assert done(op_meter).open_ns == opened_ns
    kinds = seen(op_meter).kinds
    assert not any(kind.slices[RANDOM].seen.n for kind in kinds)
    for kind in kinds:  # a short one may be long, too, on a busy machine
        assert set(names(kind.first, *kind.whole)) <= {"aten::sin"}
        assert set(names(kind.slices[CERTAIN])) <= ({"aten::cos"} if kind.to == 2 else set())
        assert kind.octave >= LONG_OCTAVE or kind.to != 2


def evaluate_and_wait(op_meter: Any) -> None:
    """An evaluation, and a pause that is longer."""
    call(op_meter, 1)
    for _ in range(OPS):
        torch.cos(X)
    time.sleep(2 * LONG_S)
    call(op_meter, 2)


def test_of_a_gap_that_was_looked_at_slices_tell_how_many_ops_it_has(op_meter: Any) -> None:
    """The pause after an evaluation is no part of it, though most slices see the evaluation."""
    for _ in range(3):  # a busy machine may split it, or end it before it is looked at
        op_meter.op_meter_clear()
        steps(op_meter)
        thread = looking(op_meter, HOUR_NS)
        evaluate_and_wait(op_meter)
        woken(op_meter, thread)
        met = total(kind.met for kind in seen(op_meter).kinds)
        if OPS / 2 < met.ops < 2 * OPS:
            break
    assert met.n == 1 and OPS / 2 < met.ops < 2 * OPS
    assert not total(kind.ended for kind in seen(op_meter).kinds).n


def test_of_a_gap_that_was_seen_to_its_end_all_but_the_beginning_is_known(op_meter: Any) -> None:
    for _ in range(5):  # a look that comes late sees too little
        op_meter.op_meter_clear()
        steps(op_meter)
        look_at(op_meter, 1)
        thread = looking(op_meter, HOUR_NS)
        evaluate_and_wait(op_meter)
        woken(op_meter, thread)
        ended = total(kind.ended for kind in seen(op_meter).kinds)
        if 0.8 * OPS < ended.ops < 1.25 * OPS:
            break
    assert ended.n == 1 and 0.8 * OPS < ended.ops < 1.25 * OPS


def test_windows_of_chance_that_saw_pauses_tell_nothing_of_evaluations(op_meter: Any) -> None:
    """However many they were: looks go on."""
    steps(op_meter)
    look_at(op_meter, 1)
    awake, by_chance = op_meter.op_meter_awake(), structs.Seen()
    while by_chance.windows < FEW:
        call(op_meter, 1)
        window = later(
            lambda: op_meter.op_meter_window(0, 1_000_000, 1_000_000, 1, HOUR_NS, -1, awake)
        )
        time.sleep(LONG_S)
        call(op_meter, 2)
        window.join()
        by_chance = total(kind.slices[RANDOM].seen for kind in seen(op_meter).kinds)
    assert not by_chance.ops
    before = number_looked_at(op_meter)
    thread = looking(op_meter, HOUR_NS)
    for _ in range(3):  # one may be over before it is looked at
        if number_looked_at(op_meter) == before:
            evaluate_and_wait(op_meter)
    woken(op_meter, thread)
    assert number_looked_at(op_meter) > before


@pytest.mark.parametrize("is_cheap", [True, False])
def test_a_gap_like_one_that_was_looked_at_is_seen_to_its_end(
    op_meter: Any, is_cheap: bool
) -> None:
    """If that costs little enough of what windows may cost; and no longer."""
    steps(op_meter)
    spent_ns = 1e9 * spent_s(done(op_meter))
    look_at(op_meter, 1)
    of_looks_ns = 1e9 * spent_s(done(op_meter)) - spent_ns
    thread = looking(op_meter, HOUR_NS if is_cheap else int(of_looks_ns) + 1_000)
    until_looked_at(op_meter)
    for _ in range(5):
        time.sleep(0.02)
        torch.tanh(X)
    call(op_meter, 2)
    torch.sqrt(X)  # the window is over
    call(op_meter, 1)
    woken(op_meter, thread)
    kinds = seen(op_meter).kinds
    found = names(*[kind.slices[CERTAIN] for kind in kinds])
    assert found["aten::tanh"] == 5 if is_cheap else found["aten::tanh"] < 5
    whole = names(*[part for kind in kinds for part in (kind.first, kind.whole[CERTAIN])])
    assert whole == {"aten::sin": 3} or not is_cheap


def test_no_window_of_chance_opens_after_one_that_saw_all_there_was_then(op_meter: Any) -> None:
    """Or what runs after such a gap would be more likely to be seen than the rest."""
    steps(op_meter)
    look_at(op_meter, 1)
    awake = op_meter.op_meter_awake()
    times_ns = 10**9, 1_000_000, 1_000_000, 1, 1_000_000, HOUR_NS
    thread = later(lambda: op_meter.op_meter_window(*times_ns, awake))
    until_looked_at(op_meter)
    time.sleep(1.1)
    call(op_meter, 2)
    thread.join()
    assert open_ns(op_meter, RANDOM) == 0
    work = done(op_meter)
    assert 0 < 1e-9 * work.unlike_ns <= spent_s(work)


@pytest.mark.parametrize("is_cheap", [True, False])
def test_a_long_gap_that_began_in_a_window_of_chance_is_seen_to_its_end(
    op_meter: Any, is_cheap: bool
) -> None:
    """Where it is like one that was looked at, and costs little enough; else for as long as windows
    wait: that may take a few of them, as a window is over in no time."""
    steps(op_meter)
    look_at(op_meter, 1)
    times_ns = 0, 50_000_000, 50_000_000, 1, HOUR_NS, HOUR_NS if is_cheap else -1
    awake = op_meter.op_meter_awake()
    found: Counter[str] = Counter()
    for _ in range(20 if is_cheap else 3):
        thread = later(lambda: op_meter.op_meter_window(*times_ns, awake))
        until_looked_at(op_meter)  # it is open
        call(op_meter, 1)
        torch.tanh(X)
        time.sleep(LONG_S)
        torch.tanh(X)
        call(op_meter, 2)
        thread.join()
        wholes = [kind.whole[RANDOM] for kind in kinds_after(seen(op_meter), 1, 2)]
        found = names(*wholes)
        if found["aten::tanh"]:
            break
    assert found["aten::tanh"] == (2 if is_cheap else 0)


@pytest.mark.parametrize(("left", "sees"), [(0.5, True), (0.8, False)])
def test_slices_are_saved_for_a_gap_that_is_seen_to_its_end(
    op_meter: Any, left: float, sees: bool
) -> None:
    """If most of what that costs is left."""
    steps(op_meter)
    look_at(op_meter, 2)
    work, looked = done(op_meter), total(kind.looked for kind in seen(op_meter).kinds)
    each_op_ns = (1e9 * EVENT_S * work.events + work.op_ns) / work.ops
    cost_ns = looked.ops / looked.n * each_op_ns
    call(op_meter, 1)
    thread = looking(op_meter, int(work.unlike_ns + left * cost_ns / MAY_COST))
    if sees:
        until_looked_at(op_meter)
    else:
        for _ in range(5 * OPS):
            torch.cos(X)
        assert done(op_meter).ops == work.ops
    woken(op_meter, thread)
    call(op_meter, 2)
