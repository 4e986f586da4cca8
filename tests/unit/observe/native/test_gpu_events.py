"""The events that the op meter's native part records on GPUs, with one that is not there."""

import os
import time
from typing import Any

import pytest
import torch
from fake_gpu import KEY, MANY_CALLS, MANY_OPS, OTHER, FakeGpu
from gpu_metering import catch_up, first_ms, ms_of, seen
from metering import CERTAIN, RANDOM, call, end_window, later, window_by_chance
from waiting import wait_until

X = torch.ones(2)


def test_what_the_gpu_takes_for_calls(op_meter: Any, gpu: FakeGpu) -> None:
    op_meter.op_meter_open(False)
    gpu.hold()
    for ms in (50.0, 4.0, 6.0):
        call(op_meter, KEY, lambda ms=ms: gpu.work(ms))
        gpu.work(3.0)  # between the calls
    call(op_meter, OTHER, lambda: gpu.work(1.0))
    catch_up(op_meter, gpu)
    found = seen(op_meter)
    assert first_ms(found, KEY) == pytest.approx(50, abs=0.01)
    count, ms = ms_of(found, KEY)
    assert (count, ms) == (2, pytest.approx(10, abs=0.01))
    assert first_ms(found, OTHER) == pytest.approx(1, abs=0.01)
    (times,) = found.times
    # The first call of each is apart.
    assert times.at_once[CERTAIN].n / 1e6 == pytest.approx(10, abs=0.01)
    assert times.seen_ns[CERTAIN] / 1e6 == pytest.approx(70, abs=0.01)
    assert times.behind_ns[CERTAIN] / times.seen_ns[CERTAIN] > 0.9


def test_work_while_it_is_behind(op_meter: Any, gpu: FakeGpu) -> None:
    """What the host takes to ask for it, and the GPU to do it; a call that waits is no asking."""

    def launch(ms: float) -> None:
        time.sleep(0.004)
        gpu.work(ms)

    op_meter.op_meter_open(False)
    call(op_meter, KEY, lambda: launch(1))  # it is not behind
    gpu.hold()
    for ms in (1.0, 2.0):
        call(op_meter, KEY, lambda ms=ms: launch(ms))
    call(op_meter, OTHER, gpu.synchronize)
    found = seen(op_meter)
    (times,) = found.times
    assert times.work_ns[CERTAIN] / 1e6 == pytest.approx(3, abs=0.01)
    (row,) = [row for row in found.calls if row.key == KEY]
    assert times.asking_ns[CERTAIN] == row.host_ns[CERTAIN] >= 8e6


def test_a_host_that_is_held_up_is_not_ahead(op_meter: Any, gpu: FakeGpu) -> None:
    """As by another process, while it records the event that ends a call that waited."""
    op_meter.op_meter_open(False)
    call(op_meter, KEY)
    gpu.hold()
    gpu.be(held_up_ms=1)
    call(op_meter, KEY, gpu.synchronize)
    (times,) = seen(op_meter).times
    assert times.work_ns[CERTAIN] == times.asking_ns[CERTAIN] == 0


def test_a_gpu_that_waits_for_the_host(op_meter: Any, gpu: FakeGpu) -> None:
    op_meter.op_meter_open(False)
    for _ in range(4):
        call(op_meter, KEY, lambda: time.sleep(0.01))
        time.sleep(0.005)
    found = seen(op_meter)
    count, ms = ms_of(found, KEY)
    assert count == 3 and ms >= 30
    (row,) = [row for row in found.calls if row.key == KEY]
    assert row.host_ns[CERTAIN] / 1e6 >= 30
    (times,) = found.times
    assert times.behind_ns[CERTAIN] < 0.5 * times.seen_ns[CERTAIN]


def test_idle_until_the_first_op(op_meter: Any, gpu: FakeGpu) -> None:
    """Between two calls the GPU is known to be idle until the host asks for something."""

    def gap(has_op: bool) -> tuple[float, float]:
        """Its ms, and how many are idle. Again where it lasted for longer than clocks agree."""
        op_meter.op_meter_clear()
        call(op_meter, KEY)
        time.sleep(0.02)
        if has_op:
            torch.sin(X)
            time.sleep(0.01)
        call(op_meter, KEY)
        (times,) = seen(op_meter).times
        found = times.gap_ns[CERTAIN] / 1e6, times.idle_ns[CERTAIN] / 1e6
        return found if found[0] else gap(has_op)

    op_meter.op_meter_open(False)
    gap_ms, idle_ms = gap(has_op=True)
    assert idle_ms >= 20 and gap_ms - idle_ms >= 10
    gap_ms, idle_ms = gap(has_op=False)
    assert gap_ms == idle_ms >= 20


def test_ops_are_timed_by_chance(op_meter: Any, gpu: FakeGpu) -> None:
    """One in sixteen; the first in a place, which may load its kernel, is none of them."""
    op_meter.op_meter_open(False)
    call(op_meter, KEY)
    gpu.hold()
    for _ in range(400):
        torch.sin(X)
        gpu.work(0.1)
    catch_up(op_meter, gpu)
    assert seen(op_meter).by_name == {}
    of_first = gpu.calls("record")
    gpu.hold()
    for _ in range(10):
        call(op_meter, KEY)
        for _ in range(40):
            torch.sin(X)
            gpu.work(0.1)
    catch_up(op_meter, gpu)
    timed = seen(op_meter).by_name["aten::sin"]
    assert 10 < timed.n < 50
    assert timed.ns / timed.n < 1e5
    assert gpu.calls("record") == of_first + 2 * (10 + timed.n)


def ops_timed(gpu: FakeGpu, ops: int) -> float:
    before = gpu.calls("record")
    for _ in range(ops):
        torch.sin(X)
    return (gpu.calls("record") - before) / 2


def test_each_window_times_many_at_first(op_meter: Any, gpu: FakeGpu) -> None:
    """However long the one before it was, which in the end timed one op in a thousand."""
    call(op_meter, KEY)
    for _ in range(8):  # without that, the next one is due soon by chance
        op_meter.op_meter_open(False)
        assert ops_timed(gpu, 64 * MANY_OPS) > MANY_OPS / 2
        assert ops_timed(gpu, 3_000) < 3_000 / 100
        op_meter.op_meter_close()
        op_meter.op_meter_open(False)
        assert ops_timed(gpu, 1_280) > 1_280 / 128
        op_meter.op_meter_close()


def test_a_runs_first_ops_are_timed_more_often(op_meter: Any, gpu: FakeGpu) -> None:
    """One in 16, until 512 have been; then one in 64, whatever window they are in."""
    ops = 640

    def timed_in(windows: int) -> float:
        timed = 0.0
        for _ in range(windows):
            op_meter.op_meter_open(False)
            timed += ops_timed(gpu, ops)
            op_meter.op_meter_close()
        return timed

    call(op_meter, KEY)
    assert timed_in(10) > 10 * ops / 24
    timed_in(6)
    assert 20 * ops / 96 < timed_in(20) < 20 * ops / 48


def test_a_window_that_never_closes_times_one_call_in_32(op_meter: Any, gpu: FakeGpu) -> None:
    """And gaps only between two calls of which both are timed."""
    op_meter.op_meter_open(True)
    calls, many = 5_000, MANY_CALLS
    for _ in range(calls):
        call(op_meter, KEY)
    found = seen(op_meter)
    timed, _ = ms_of(found, KEY)
    assert 1 + timed == gpu.calls("record") / 2
    assert many + (calls - many) / 48 < timed < many + (calls - many) / 24
    # Each of the work is 1 ms, which only a call that is not timed can bring between two others.
    for _ in range(200):
        call(op_meter, KEY, lambda: gpu.work(1))
        gpu.synchronize()
    (times,) = seen(op_meter).times
    assert times.gap_ns[CERTAIN] - found.times[0].gap_ns[CERTAIN] < 50e6


def test_nothing_is_recorded_without_a_window(op_meter: Any, gpu: FakeGpu) -> None:
    call(op_meter, KEY)
    torch.sin(X)
    assert gpu.calls("record") == gpu.calls("current_device") == 0


def test_a_call_that_outlasts_its_window(op_meter: Any, gpu: FakeGpu) -> None:
    op_meter.op_meter_open(False)
    call(op_meter, KEY)

    gpu.hold()

    def outlasts() -> None:
        gpu.work(8)
        end_window(op_meter).join()

    call(op_meter, KEY, outlasts)
    recorded = gpu.calls("record")
    call(op_meter, KEY)
    catch_up(op_meter, gpu)
    assert ms_of(seen(op_meter), KEY) == (1, pytest.approx(8, abs=0.01))
    assert gpu.calls("record") == recorded


def test_a_window_of_chance_reads_what_the_gpu_reaches_later(op_meter: Any, gpu: FakeGpu) -> None:
    """On the thread that opened it, without another call of the program's; not for ever."""

    def read_later() -> bool:
        op_meter.op_meter_clear()
        gpu.hold()
        awake, recorded = op_meter.op_meter_awake(), gpu.calls("record")
        opened = later(lambda: window_by_chance(op_meter, 20_000_000, 1_000_000, awake))

        def works() -> None:
            if gpu.calls("record") > recorded:  # the window is open
                gpu.work(5)

        while gpu.calls("record") == recorded:
            call(op_meter, KEY, works)
        before = gpu.calls("elapsed_ms")
        wait_until(lambda: gpu.calls("elapsed_ms") > before or not opened.is_alive())
        gpu.synchronize()
        opened.join()
        looks = gpu.calls("elapsed_ms")
        assert ms_of(seen(op_meter), KEY, RANDOM) == (1, pytest.approx(5, abs=0.01))
        return gpu.calls("elapsed_ms") == looks

    assert any(read_later() for _ in range(20))  # a busy machine may take too long


def test_nothing_is_waited_for(op_meter: Any, gpu: FakeGpu) -> None:
    op_meter.op_meter_open(False)
    call(op_meter, KEY)
    catch_up(op_meter, gpu)
    call(op_meter, KEY, lambda: gpu.work(3_600_000))
    assert ms_of(seen(op_meter), KEY) == (0, 0)  # and not after an hour


def test_a_stream_that_is_being_captured(op_meter: Any, gpu: FakeGpu) -> None:
    op_meter.op_meter_open(False)
    gpu.be(capturing=True)
    call(op_meter, KEY, lambda: gpu.work(5))
    gpu.be()
    gpu.hold()
    call(op_meter, KEY, lambda: gpu.work(2))
    catch_up(op_meter, gpu)
    assert first_ms(seen(op_meter), KEY) == pytest.approx(2, abs=0.01)
    assert gpu.calls("record") == 2


def test_each_call_leaves_the_capture_mode_as_it_was(op_meter: Any, gpu: FakeGpu) -> None:
    op_meter.op_meter_open(False)
    call(op_meter, KEY)
    modes = gpu.calls("exchange_capture_mode")
    assert modes and modes % 2 == 0
    assert gpu.capture_mode == 0


@pytest.mark.parametrize(("error", "stays"), [(400, 0), (700, 700)])
def test_an_error_of_our_own_call_is_not_the_programs(
    op_meter: Any, gpu: FakeGpu, error: int, stays: int
) -> None:
    """One that lasts is, whoever meets it first."""
    op_meter.op_meter_open(False)
    gpu.be(error=error)
    call(op_meter, KEY)
    assert op_meter.op_meter_gpu_error() == error
    assert gpu.pending_error == stays


def test_an_error_of_cudas_ends_it(op_meter: Any, gpu: FakeGpu) -> None:
    """It is the program's own, which gets it with its next call."""
    op_meter.op_meter_open(False)
    call(op_meter, KEY)
    gpu.be(error=700)
    call(op_meter, KEY)
    recorded = gpu.calls("record")
    gpu.be()
    call(op_meter, KEY)
    assert gpu.calls("record") == recorded
    assert seen(op_meter).error == 700


def test_events_are_used_again(op_meter: Any, gpu: FakeGpu) -> None:
    op_meter.op_meter_open(False)
    for _ in range(500):
        call(op_meter, KEY)
    assert gpu.calls("create") == 32


def test_a_gpu_that_never_gets_there_takes_no_end_of_events(op_meter: Any, gpu: FakeGpu) -> None:
    op_meter.op_meter_open(False)
    gpu.work(3_600_000)
    for _ in range(100_000):
        call(op_meter, KEY)
    assert gpu.calls("create") == 4096


def test_a_graph_on_another_device_than_the_current_one(op_meter: Any, gpu: FakeGpu) -> None:
    """As on a rank that never calls `torch.cuda.set_device`: an error would be the program's."""
    elsewhere = 3
    op_meter.op_meter_gpu(elsewhere, 1, gpu.functions)
    op_meter.op_meter_open(False)
    gpu.hold()
    for _ in range(3):
        call(op_meter, elsewhere, lambda: gpu.work(4.0))
        assert gpu.current_device == 0
    catch_up(op_meter, gpu)
    count, ms = ms_of(seen(op_meter), elsewhere)
    assert (count, ms) == (2, pytest.approx(8, abs=0.01))
    assert op_meter.op_meter_gpu_error() == 0
    assert gpu.calls("create_guard") == gpu.calls("delete_guard") > 0


def test_the_current_device_needs_no_guard(op_meter: Any, gpu: FakeGpu) -> None:
    op_meter.op_meter_open(False)
    call(op_meter, KEY)
    assert gpu.calls("record") == 2
    assert gpu.calls("create_guard") == 0


def test_clearing_forgets_what_was_seen(op_meter: Any, gpu: FakeGpu) -> None:
    op_meter.op_meter_open(False)
    call(op_meter, KEY, lambda: gpu.work(5))
    op_meter.op_meter_clear()
    found = seen(op_meter)
    assert ms_of(found, KEY) == (0, 0) and first_ms(found, KEY) < 0
    gpu.hold()
    call(op_meter, KEY, lambda: gpu.work(5))
    catch_up(op_meter, gpu)
    assert first_ms(seen(op_meter), KEY) == pytest.approx(5, abs=0.01)


def test_a_compilation_inside_a_call_is_none_of_it(op_meter: Any, gpu: FakeGpu) -> None:
    def compiles() -> None:
        op_meter.op_meter_quiet(1, True, 0)
        time.sleep(0.5)
        op_meter.op_meter_quiet(-1, True, 0)

    op_meter.op_meter_open(False)
    call(op_meter, KEY, compiles)
    assert first_ms(seen(op_meter), KEY) < 250


def test_a_forked_child_leaves_the_parents_gpu_alone(op_meter: Any, gpu: FakeGpu) -> None:
    op_meter.op_meter_open(False)
    call(op_meter, KEY)
    if not (child := os.fork()):
        recorded = gpu.calls("record")
        op_meter.op_meter_after_fork()
        op_meter.op_meter_open(False)
        call(op_meter, KEY)
        os._exit(gpu.calls("record") - recorded)
    assert os.waitpid(child, 0)[1] == 0
