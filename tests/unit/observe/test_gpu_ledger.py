"""The GPU ledger, on values made by hand: 100 s, of which 10 compiling."""

import pytest

from instrumented_backend.observe.gpu_ledger import gpu_ledger, waiting_ns
from instrumented_backend.observe.native.keys import region_key
from instrumented_backend.observe.native.structs import (
    GpuCallRow,
    GpuTimeRow,
    RegionRow,
    Seen,
    TimeRow,
)
from instrumented_backend.observe.ops.estimate import Estimate
from instrumented_backend.observe.ops.gpu_seen import GpuSeen
from instrumented_backend.observe.ops.observed import Kind, Mark, Observed, Part
from instrumented_backend.observe.ops.scaled import LONG
from instrumented_backend.records import GPU_BOUND, LAUNCH_BOUND, STREAM_BOUND, GraphRecord, notes

S = 10**9
FORWARD = region_key(0, False)
NOTHING = Part(Seen(), [])


def gap(
    seconds: float, n: int = 1, octave: int = LONG, op_share: float = 0.0, mark: int = 0
) -> Kind:
    """Gaps of the main thread, ``n`` of them, all of which a window saw."""
    seen = Seen(n=n, ns=seconds * S, ops=1, op_ns=op_share * seconds * S)
    part = Part(seen, [])
    return Kind(
        edge=0,
        mark=mark,
        to=FORWARD,
        octave=octave,
        n=(n, 0),
        ns=(int(seconds * S), 0),
        whole=(NOTHING, NOTHING),
        slices=(part, NOTHING),
        first=NOTHING,
    )


def observed(gpu: GpuSeen, *kinds: Kind, calls: int = 60, host_s: float = 6.0) -> Observed:
    marks = [Mark(region=0, event=0, in_data=False), Mark(region=0, event=0, in_data=True)]
    regions = {FORWARD: RegionRow(calls, 0, int(host_s * S), 0)}
    times = TimeRow(main_compile_ns=10 * S)
    loose = NOTHING, NOTHING
    return Observed(marks, list(kinds), loose, regions, times, [], False, 100 * S, gpu=gpu)


def seen(gpu_s: float, behind: float, late_s: float = 0.0, idle: float = 0.0) -> GpuSeen:
    """Two windows saw three calls each, of ``gpu_s`` each; the other two are shares."""
    times, calls = GpuTimeRow(0), GpuCallRow(FORWARD, 0, -1.0)
    for index in range(2):
        window = Seen(n=3, ns=3 * gpu_s * S, ops=3 * (gpu_s - 0.1 - index) * S, op_ns=3 * gpu_s * S)
        window.windows, window.n2 = 1, 9
        window.op_ns2, window.op_ns_n = window.op_ns**2, 3 * window.op_ns
        window.ops2, window.ops_n = window.ops**2, 3 * window.ops
        calls.seen[1].add(window)
    calls.host_ns[1] = 6 * 0.1 * S
    times.at_once[1] = Seen(n=6 * gpu_s * S, ops=6 * gpu_s * S, windows=1)
    times.seen_ns[1], times.behind_ns[1] = 10 * S, behind * 10 * S
    times.gap_ns[1], times.idle_ns[1] = 4 * S, idle * 4 * S
    times.ends[1], times.late_ns[1] = 6, 6 * late_s * S
    return GpuSeen([times], [calls])


def test_rows_add_up_to_the_timeline() -> None:
    """60 calls of 1 s; of the 30 s left 4 waiting, and a quarter of the rest before first ops."""
    made = gpu_ledger(observed(seen(1.0, 0.1, idle=0.25), gap(4)), Estimate(False), [])
    (gpu,) = made.gpus
    assert made.timeline_s == pytest.approx(90) and made.note is None
    assert gpu.captured_s == pytest.approx(60)
    assert gpu.idle_s == pytest.approx(4 + 26 / 4)
    assert gpu.captured_s + gpu.eager_s + gpu.idle_s == pytest.approx(90)
    assert gpu.captured_pct == pytest.approx(100 * 60 / 90)
    assert (gpu.verdict, gpu.behind_pct) == (LAUNCH_BOUND, pytest.approx(10))
    assert (gpu.observed_pct, gpu.status) == (10, "sampled")


def test_a_gpu_that_is_behind_works_while_the_host_waits() -> None:
    """Ten gaps of 2 s each, in the first half second of which it catches up."""
    found = observed(seen(1.0, 0.9, late_s=0.5), gap(20, n=10))
    (gpu,) = gpu_ledger(found, Estimate(False), []).gpus
    assert (gpu.verdict, gpu.idle_s) == (GPU_BOUND, pytest.approx(15))
    # And at the end, when it is waited for.
    found = observed(seen(1.0, 0.9, late_s=0.5), gap(0.4))
    (gpu,) = gpu_ledger(found, Estimate(False), []).gpus
    assert gpu.idle_s == 0


def test_a_gpu_that_waits_for_other_streams_is_behind_too() -> None:
    """Its kernels take a tenth of the time of their launches, and wait for those of others."""
    made = seen(0.01, 0.9)
    times = made.times[0]
    times.work_ns[1], times.asking_ns[1] = 1 * S, 10 * S
    (gpu,) = gpu_ledger(observed(made), Estimate(False), []).gpus
    assert (gpu.verdict, gpu.behind_pct) == (STREAM_BOUND, pytest.approx(90))
    times.work_ns[1] = 10 * S
    (gpu,) = gpu_ledger(observed(made), Estimate(False), []).gpus
    assert gpu.verdict == GPU_BOUND


def test_what_waits() -> None:
    none = GpuSeen()
    assert waiting_ns(observed(none, gap(3, op_share=0.04)), 0) == pytest.approx(3 * 0.96 * S)
    assert waiting_ns(observed(none, gap(3, op_share=0.5)), 0) == 0  # at work
    assert waiting_ns(observed(none, gap(3, octave=LONG - 1)), 0) == 0  # windows see all of it
    data = gap(3, n=100, octave=LONG - 1, op_share=0.5, mark=1)
    assert waiting_ns(observed(none, data), 0) == 3 * S
    assert waiting_ns(observed(none, data), 0.02 * S) == pytest.approx(1 * S)
    assert waiting_ns(observed(none, data), 0.5 * S) == 0


def test_no_more_than_the_timeline() -> None:
    (gpu,) = gpu_ledger(observed(seen(5.0, 0.9)), Estimate(False), []).gpus
    assert (gpu.captured_pct, gpu.eager_pct, gpu.idle_pct) == (100, 0, 0)


def test_graphs_have_their_time() -> None:
    graph, other = GraphRecord(graph=0), GraphRecord(graph=1)
    gpu_ledger(observed(seen(1.0, 0.1)), Estimate(False), [graph, other])
    assert graph.gpu_time_us == graph.forward_gpu_us == pytest.approx(60e6)
    assert graph.backward_gpu_us is other.gpu_time_us is None


def test_nothing_seen() -> None:
    assert gpu_ledger(observed(GpuSeen()), Estimate(False), []).timeline_s is None
    assert gpu_ledger(None, None, []).gpus == []
    never_seen = GpuSeen([GpuTimeRow(0)], [GpuCallRow(FORWARD, 0, -1.0)])
    made = gpu_ledger(observed(never_seen), Estimate(False), [])
    assert (made.gpus, made.note_code) == ([], notes.GPU_UNKNOWN)
    assert made.note == "no window saw a call of a graph on a GPU"


def test_a_build_of_torch_that_has_not_its_functions() -> None:
    made = gpu_ledger(observed(GpuSeen(problem="none")), Estimate(False), [])
    assert (made.gpus, made.note, made.note_code) == ([], "none", notes.GPU_UNKNOWN)


def test_no_call_since_the_last_reset() -> None:
    """Of a graph that was called on a GPU before."""
    assert gpu_ledger(observed(seen(1.0, 0.1), calls=0), Estimate(False), []).gpus == []


def test_an_error_of_cudas() -> None:
    found = seen(1.0, 0.1)
    found.error = 700
    made = gpu_ledger(observed(found), Estimate(False), [])
    assert made.note == "CUDA's error 700 ended the observation of GPUs"
    assert len(made.gpus) == 1
