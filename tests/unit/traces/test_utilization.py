"""Times computed by hand, in µs, with the arithmetic beside them; and two real traces, twice."""

import random
from pathlib import Path
from typing import Any

import pytest
from traces import (
    ALL_REDUCE,
    ATTENTION,
    GEMM,
    Event,
    annotation,
    copy,
    kernel,
    launch,
    op,
    write,
)

from instrumented_backend.profiling import TimeRange, read_trace, time_of
from instrumented_backend.traces.utilization import DeviceTime, TraceTime


@pytest.fixture
def analyse(tmp_path: Path) -> Any:
    def analyse(*events: Event, within: str | None = None, **fields: Any) -> TraceTime:
        trace = read_trace(write(tmp_path / "t.json", list(events), **fields))
        return time_of(trace, None if within is None else TimeRange.parse(within))

    return analyse


def check(device: DeviceTime, **expected: float | None) -> None:
    assert {name: getattr(device, f"{name}_us") for name in expected} == expected


WHOLE = op(0, 100)  # makes the window 0 to 100


# --- Busy ---------------------------------------------------------------------------------------


def test_two_kernels(analyse: Any) -> None:
    time = analyse(WHOLE, kernel(10, 10), kernel(50, 10))
    check(time.devices[0], busy=20, compute=20, idle=80, copy=0, communication=0, matrix=0)
    assert (time.start_us, time.window_us) == (0, 100)


def test_streams_that_overlap(analyse: Any) -> None:
    # Stream 7 from 10 to 50, stream 13 from 30 to 60 and inside the first from 20 to 25: 10 to 60.
    time = analyse(WHOLE, kernel(10, 40), kernel(30, 30, stream=13), kernel(20, 5, stream=13))
    check(time.devices[0], busy=50, compute=50, idle=50)


def test_annotations_are_no_work(analyse: Any) -> None:
    # Two nested ones on the GPU's timeline, from 5 to 95: only the kernels' 20 count.
    time = analyse(
        WHOLE,
        kernel(5, 90, "ProfilerStep#1", cat="gpu_user_annotation"),
        kernel(8, 80, "forward", cat="gpu_user_annotation"),
        annotation(0, 100, "ProfilerStep#1"),
        kernel(10, 10),
        kernel(50, 10),
    )
    check(time.devices[0], busy=20, compute=20)
    assert time.devices[0].kernel_count == 2


def test_two_gpus(analyse: Any) -> None:
    time = analyse(WHOLE, kernel(0, 80), kernel(30, 40, device=1), kernel(35, 5, device=1))
    first, second = time.devices
    check(first, busy=80, idle=20)
    check(second, busy=40, idle=60)
    assert (first.device, second.device) == (0, 1)


def test_kernels_of_no_length(analyse: Any) -> None:
    time = analyse(WHOLE, kernel(10, 0), kernel(50, 10), kernel(55, 0), kernel(60, 0))
    check(time.devices[0], busy=10, idle=90)
    assert time.devices[0].kernel_count == 4


def test_a_copy_during_a_kernel(analyse: Any) -> None:
    # Kernel 10 to 30, copy 20 to 40: busy 10 to 40. A memset from 60 to 65.
    memset = kernel(60, 5, "Memset (Device)", cat="gpu_memset")
    time = analyse(WHOLE, kernel(10, 20), copy(20, 20, stream=14), memset)
    check(time.devices[0], busy=35, compute=20, copy=25, idle=65)
    assert (time.devices[0].kernel_count, time.devices[0].copy_count) == (1, 2)


def test_communication_that_compute_hides_in_part(analyse: Any) -> None:
    # NCCL from 20 to 60; kernels from 10 to 30 and from 50 to 80: it shows from 30 to 50.
    # A copy from 40 to 45 hides nothing.
    time = analyse(
        WHOLE,
        kernel(20, 40, ALL_REDUCE, stream=20),
        kernel(10, 20),
        kernel(50, 30),
        copy(40, 5, stream=14),
    )
    check(
        time.devices[0],
        busy=70,
        compute=50,
        communication=40,
        exposed_communication=20,
        copy=5,
        idle=30,
    )


def test_events_out_of_order(analyse: Any) -> None:
    events = [WHOLE, kernel(10, 40), kernel(30, 30), kernel(45, 40, ALL_REDUCE), copy(5, 10)]
    forward, backward = analyse(*events), analyse(*events[::-1])
    # Kernels 10 to 60, NCCL on to 85, copy from 5: busy 5 to 85.
    check(forward.devices[0], busy=80, compute=50, exposed_communication=25)
    assert forward.devices == backward.devices


def test_missing_dur(analyse: Any) -> None:
    cut_off = kernel(40, 0)
    del cut_off["dur"]
    time = analyse(WHOLE, kernel(10, 10), cut_off)
    check(time.devices[0], busy=10)
    assert time.devices[0].kernel_count == 2
    assert "1 event without dur: taken as zero long" in time.notes


def test_matrix_work(analyse: Any) -> None:
    # GEMM 10 to 30, attention 25 to 45 beside it, pointwise 40 to 60: matrix 10 to 45.
    # A convolution of 5.
    time = analyse(
        WHOLE,
        kernel(10, 20, GEMM),
        kernel(25, 20, ATTENTION, stream=13),
        kernel(40, 20),
        kernel(70, 5, "sm90_xmma_wgrad_implicit_gemm_bf16bf16_bf16f32"),
    )
    check(time.devices[0], compute=55, matrix=40, gemm=20, attention=20, convolution=5)


def test_several_processes_in_one_file(analyse: Any) -> None:
    """Merged traces: what shares a GPU's pid and index is one timeline, other pids are others."""
    time = analyse(
        WHOLE,
        op(0, 100, pid=200),
        kernel(0, 30),  # of process 100
        kernel(20, 30),  # of process 200, on the same GPU: together 0 to 50
        {**kernel(60, 20), "pid": 1000},
    )
    same, other = time.devices
    check(same, busy=50)
    check(other, busy=20)
    assert [(d.device, d.pid) for d in time.devices] == [(0, 0), (0, 1000)]


# --- Idle ---------------------------------------------------------------------------------------


def test_idle_time_by_cause(analyse: Any) -> None:
    time = analyse(
        op(0, 200),
        # Launched at 10: the host's until then, 10; under way until it starts, 20.
        launch(10, 5, 1),
        kernel(30, 20, correlation=1),
        # Launched at 40, while the first ran: the gap from 50 to 58 is between kernels.
        launch(40, 5, 2),
        kernel(58, 12, correlation=2),
        # A copy launched at 85: 70 to 85 the host's, 85 to 90 under way.
        launch(85, 3, 3),
        copy(90, 10, correlation=3),
        # No call known: 100 to 120 unknown.
        kernel(120, 10, correlation=99),
        # Nothing more: 130 to 200 the host's.
    )
    check(
        time.devices[0],
        busy=52,
        idle=148,
        idle_host=10 + 15 + 70,
        idle_launch=20 + 5,
        idle_kernel_gap=8,
        idle_unknown=20,
    )
    assert "the calls that launched 1 kernels are not in it" in time.notes


def test_a_launch_that_seems_to_come_after_its_kernel(analyse: Any) -> None:
    # Clocks of host and GPU differ a little: all of the gap from 20 to 30 is the host's.
    time = analyse(
        launch(0, 5, 1),
        kernel(0, 20, correlation=1),
        launch(31, 9, 2),
        kernel(30, 10, correlation=2),
    )
    check(time.devices[0], idle=10, idle_host=10, idle_launch=0, idle_kernel_gap=0)


# --- Captured -----------------------------------------------------------------------------------


def launches_and_kernels() -> list[Event]:
    """Calls at 10, 30, 50 (thread 1) and at 12 (thread 2), kernels of 1, 2, 4 and 8 µs."""
    return [
        WHOLE,
        launch(10, 2, 1),
        launch(30, 2, 2),
        launch(50, 2, 3),
        launch(12, 2, 4, tid=2),
        kernel(60, 1, correlation=1),
        kernel(62, 2, correlation=2),
        kernel(65, 4, correlation=3),
        kernel(70, 8, correlation=4),
        copy(90, 5, correlation=1),
    ]


def test_captured_by_region_and_thread(analyse: Any) -> None:
    time = analyse(
        *launches_and_kernels(),
        annotation(5, 10, "TORCHDYNAMO"),  # 5 to 15 on thread 1: the call at 10, not thread 2's
        annotation(45, 10, "TORCHDYNAMO_BACKWARD"),  # the call at 50
        annotation(46, 2, "TORCHDYNAMO_BACKWARD"),  # nested
        op(25, 10, "## Call CompiledFxGraph abc ##"),  # not asked where there are better marks
    )
    device = time.devices[0]
    # 1 and 4 of 15; the copy does not count.
    check(device, captured=1 + 4, not_captured=2 + 8, capture_unknown=0)
    assert device.captured_share == pytest.approx(5 / 15)
    assert time.captured_by == "TORCHDYNAMO" and time.notes == []


def test_captured_in_plain_inductors_traces(analyse: Any) -> None:
    """Dynamo's own region holds what runs eagerly after a break, too: the call at 30."""
    region = op(5, 30, "Torch-Compiled Region: 0/0")
    time = analyse(
        *launches_and_kernels(), region, op(8, 5, "## Call CompiledFxGraph fqtgsuk ##", tid=1)
    )
    check(time.devices[0], captured=1, not_captured=2 + 4 + 8)
    assert time.captured_by == "## Call CompiledFxGraph"
    assert "`## Call CompiledFxGraph`" in time.notes[0]
    time = analyse(*launches_and_kernels(), region)
    check(time.devices[0], captured=None, not_captured=None, capture_unknown=None)
    assert time.captured_by is None
    assert "`Torch-Compiled Region` holds what ran eagerly" in time.notes[0]


def test_captured_without_regions(analyse: Any) -> None:
    time = analyse(*launches_and_kernels())
    check(time.devices[0], captured=0, not_captured=15, capture_unknown=0)
    assert time.captured_by is None
    assert time.notes == ["no compiled region in it: nothing counts as captured"]


def test_captured_without_the_hosts_events(analyse: Any) -> None:
    time = analyse(*launches_and_kernels()[1:])
    check(time.devices[0], captured=None, not_captured=None, capture_unknown=None)
    assert time.devices[0].captured_share is None
    assert time.notes == ["no host events in it: what compiled regions launched is unknown"]


def test_kernels_with_no_operator_and_no_call(analyse: Any) -> None:
    time = analyse(
        WHOLE,
        annotation(5, 10, "TORCHDYNAMO"),
        launch(10, 2, 1),
        kernel(20, 10, correlation=1),
        kernel(40, 30),
        kernel(80, 5, correlation=77),
    )
    device = time.devices[0]
    check(device, busy=45, captured=10, not_captured=0, capture_unknown=35)
    assert device.captured_share == 1
    assert "the calls that launched 2 kernels are not in it" in time.notes


# --- Kernels ------------------------------------------------------------------------------------


def test_kernels_by_total_time(analyse: Any) -> None:
    time = analyse(
        WHOLE, kernel(0, 6, GEMM), kernel(10, 30, "b"), kernel(50, 10, GEMM), copy(80, 20)
    )
    assert [vars(k) for k in time.devices[0].kernels] == [
        {"name": "b", "kind": "other", "count": 1, "total_us": 30, "mean_us": 30, "share": 30 / 46},
        {"name": GEMM, "kind": "gemm", "count": 2, "total_us": 16, "mean_us": 8, "share": 16 / 46},
    ]


def test_a_range_clips_everything(analyse: Any) -> None:
    events = [
        op(0, 100),
        annotation(0, 100, "TORCHDYNAMO"),
        launch(0, 1, 1),
        kernel(10, 30, GEMM, correlation=1),  # of 25 to 55: 25 to 40
        launch(42, 1, 2),
        kernel(50, 30, "b", correlation=2),  # 50 to 55
        kernel(28, 4, ALL_REDUCE, stream=9, correlation=2),  # 28 to 32, hidden
        kernel(90, 5, "c", correlation=2),
    ]
    time = analyse(*events, within="25us-55us")
    device = time.devices[0]
    assert (time.start_us, time.window_us) == (25, 30)
    # Idle from 40 to 50: launched at 42.
    check(device, busy=20, matrix=15, compute=20, communication=4, exposed_communication=0)
    check(device, idle=10, idle_host=2, idle_launch=8, captured=15 + 5 + 4)
    assert [(k.name, k.count, k.total_us) for k in device.kernels] == [
        (GEMM, 1, 15),
        ("b", 1, 5),
        (ALL_REDUCE, 1, 4),
    ]
    # What ends the gap may lie behind the range: 85 to 88 belongs to the launch at 42, queued
    # before 80.
    check(analyse(*events, within="85us-88us").devices[0], busy=0, idle=3, idle_kernel_gap=3)


def test_a_step(analyse: Any) -> None:
    time = analyse(
        annotation(0, 50, "ProfilerStep#1"),
        annotation(50, 50, "ProfilerStep#2"),
        kernel(10, 10),
        kernel(45, 20),
        within="#2",
    )
    assert (time.start_us, time.window_us) == (50, 50)
    check(time.devices[0], busy=15, idle=35)


def test_no_gpu(analyse: Any) -> None:
    time = analyse(WHOLE)
    assert time.devices == []
    assert time.notes == ["no GPU activity in it: how busy a GPU was is unknown"]


def test_rank(analyse: Any) -> None:
    time = analyse(
        kernel(0, 10, device=3),
        distributedInfo={"rank": 3, "world_size": 4},
        deviceProperties=[{"id": 3, "name": "NVIDIA H100"}],
    )
    assert (time.rank, time.world_size, time.devices[0].name) == (3, 4, "NVIDIA H100")
    check(time.devices[0], busy=10, idle=0)


ODD = [None, "x", "7", -1, 1e300, 1e18, 10**30, True, [], {}, [{}], 0, float("nan"), float("inf")]


@pytest.mark.parametrize("seed", range(10))
def test_odd_values_anywhere(analyse: Any, seed: int) -> None:
    """They cost the event that has them, or a note; what is left still adds up."""
    chance = random.Random(seed)
    for _ in range(20):
        events = [dict(e) for e in [*launches_and_kernels(), annotation(5, 10, "TORCHDYNAMO")]]
        for _ in range(chance.randrange(1, 6)):
            victim = chance.choice(events)
            key = chance.choice(["ts", "dur", "pid", "tid", "name", "cat", "ph", "args"])
            if key == "args" and isinstance(victim.get("args"), dict):
                inner = chance.choice(["correlation", "device"])
                victim["args"] = {**victim["args"], inner: chance.choice(ODD)}
            else:
                victim[key] = chance.choice(ODD)
        time = analyse(
            *events, distributedInfo=chance.choice(ODD), deviceProperties=chance.choice(ODD)
        )
        for device in time.devices:
            causes = ("host", "launch", "kernel_gap", "unknown")
            idle = sum(getattr(device, f"idle_{cause}_us") for cause in causes)
            assert idle == pytest.approx(device.idle_us)
            assert device.busy_us + device.idle_us == pytest.approx(time.window_us)
            assert 0 <= device.busy_us <= time.window_us
