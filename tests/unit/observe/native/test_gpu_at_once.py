"""Calls on a GPU that are at once, on threads or streams: what windows see, and what is counted."""

import threading
import time
from typing import Any

import metering
import pytest
from fake_gpu import KEY, MANY_CALLS, OTHER, FakeGpu
from gpu_metering import catch_up, first_ms, ms_of, seen
from metering import CERTAIN, call, finish, later, on_thread


@pytest.mark.parametrize("is_seen", [False, True])
@pytest.mark.parametrize("calls", [1, 200])  # more than a thread notes until they are booked
def test_all_calls_that_begin_and_end_while_another_is_under_way(
    op_meter: Any, gpu: FakeGpu, calls: int, is_seen: bool
) -> None:
    if is_seen:
        op_meter.op_meter_open(False)

    def others() -> None:
        for _ in range(calls):
            call(op_meter, OTHER)

    call(op_meter, KEY, lambda: on_thread(others))
    call(op_meter, OTHER)  # is with none
    found = metering.seen(op_meter)
    assert found.regions[OTHER].calls == calls + 1
    alone_ns = found.regions[OTHER].ns - found.gpu.times[0].more_ns
    assert 0 < alone_ns <= found.regions[OTHER].longest_ns


def test_a_call_that_is_under_way_when_another_one_ends(op_meter: Any, gpu: FakeGpu) -> None:
    """Each is on its own for a while, and both are at once for a while."""
    begun, may_end = threading.Event(), threading.Event()

    def other() -> None:
        begun.set()
        may_end.wait()

    op_meter.op_meter_enter(KEY)
    thread = later(lambda: call(op_meter, OTHER, other))
    begun.wait()
    op_meter.op_meter_leave(KEY)
    may_end.set()
    finish(thread)
    found = metering.seen(op_meter)
    lasted = [found.regions[key].ns for key in (KEY, OTHER)]
    assert 0 < found.gpu.times[0].more_ns < min(lasted)


def test_calls_of_regions_on_no_gpu_are_not_counted(op_meter: Any, gpu: FakeGpu) -> None:
    call(op_meter, KEY, lambda: on_thread(lambda: call(op_meter, OTHER + 1)))
    assert seen(op_meter).times[0].more_ns == 0


def test_what_was_at_once_is_forgotten(op_meter: Any, gpu: FakeGpu) -> None:
    call(op_meter, KEY, lambda: on_thread(lambda: call(op_meter, OTHER)))
    op_meter.op_meter_clear()
    assert seen(op_meter).times[0].more_ns == 0


def test_the_gpu_waits_for_two_threads(op_meter: Any, gpu: FakeGpu) -> None:
    """As much is at once there as on the host."""
    op_meter.op_meter_open(False)
    for key in (KEY, OTHER):
        call(op_meter, key)  # the first of a kind is apart
    half = lambda: call(op_meter, OTHER, lambda: time.sleep(0.1))  # noqa: E731
    call(op_meter, KEY, lambda: (on_thread(half), time.sleep(0.1)))
    at_once = seen(op_meter).times[0].at_once[CERTAIN]
    assert at_once.ops < 0.9 * at_once.n
    assert abs(at_once.op_ns) < 0.1 * at_once.n


def test_what_recording_takes_is_no_time_of_a_call_at_once_with_others(
    op_meter: Any, gpu: FakeGpu
) -> None:
    """The GPU waits for it: on one thread, what is at once is just what calls take."""
    op_meter.op_meter_open(False)
    call(op_meter, KEY)  # the first is apart
    gpu.be(held_up_ms=5)
    for _ in range(2):
        call(op_meter, KEY, lambda: time.sleep(0.01))
    found = seen(op_meter)
    count, ms = ms_of(found, KEY)
    at_once = found.times[0].at_once[CERTAIN]
    assert count == 2 and at_once.n / 1e6 == at_once.ops / 1e6 == pytest.approx(ms)


def test_calls_on_two_streams_at_once_are_one_piece_of_the_timeline(
    op_meter: Any, gpu: FakeGpu
) -> None:
    op_meter.op_meter_open(False)
    call(op_meter, KEY)  # the first of a kind is apart
    call(op_meter, OTHER)
    gpu.hold()
    for key, stream in ((KEY, 1), (OTHER, 2)):
        gpu.be(stream=stream)
        call(op_meter, key, lambda: gpu.work(50))
    catch_up(op_meter, gpu)
    (times,) = seen(op_meter).times
    at_once = times.at_once[CERTAIN]
    assert at_once.n / 1e6 == pytest.approx(100, abs=0.1)
    assert at_once.ops / 1e6 == pytest.approx(50, abs=0.1)
    # The host has called one after the other.
    assert at_once.op_ns / 1e6 == pytest.approx(-50, abs=0.1)


def test_calls_beside_one_that_is_not_timed_do_not_tell_which_are_at_once(
    op_meter: Any, gpu: FakeGpu
) -> None:
    """It began before the window opened, on another thread."""
    begun, goes_on = threading.Event(), threading.Event()

    def waits() -> None:
        begun.set()
        goes_on.wait()

    other = threading.Thread(target=call, args=(op_meter, OTHER, waits))
    other.start()
    begun.wait()
    op_meter.op_meter_open(False)
    gpu.hold()
    call(op_meter, KEY, lambda: gpu.work(20))
    goes_on.set()
    finish(other)
    for _ in range(2):
        call(op_meter, KEY, lambda: gpu.work(4))
    catch_up(op_meter, gpu)
    found = seen(op_meter)
    assert found.times[0].at_once[CERTAIN].n / 1e6 == pytest.approx(8, abs=0.01)
    assert first_ms(found, KEY) == pytest.approx(20, abs=0.01)


def test_where_calls_are_left_out_nothing_tells_which_are_at_once(
    op_meter: Any, gpu: FakeGpu
) -> None:
    op_meter.op_meter_open(False)
    gpu.hold()
    for _ in range(16 * MANY_CALLS):
        call(op_meter, KEY, lambda: gpu.work(0.25))
    catch_up(op_meter, gpu)
    (times,) = seen(op_meter).times
    # Some are timed after the first so many, too, and are not in it.
    calls = times.ends[CERTAIN]
    assert calls > 1.05 * MANY_CALLS
    at_once = times.at_once[CERTAIN]
    assert at_once.n / 1e6 == pytest.approx(0.25 * MANY_CALLS, rel=0.02)
    assert at_once.ops == pytest.approx(at_once.n)
