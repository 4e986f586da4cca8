import contextlib
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest
from paths import DATA
from traces import ALL_REDUCE, ATTENTION, GEMM, copy, kernel, launch, op, write

from instrumented_backend import profiling
from instrumented_backend.profiling import (
    TraceError,
    benchmark_utilization,
    compute_utilization,
    dump_chrome_trace,
    get_chrome_trace_events,
    get_duration,
    get_sorted_gpu_events,
    get_sorted_gpu_mm_conv_events,
    is_gpu_compute_event,
)

HUNDRED_US = 100e-6


def test_exported_names_and_pytorchs_parameters() -> None:
    from torch._functorch import benchmark_utils

    for name in (
        "benchmark_utilization",
        "compute_utilization",
        "dump_chrome_trace",
        "get_chrome_trace_events",
        "get_duration",
        "get_sorted_gpu_events",
        "get_sorted_gpu_mm_conv_events",
        "is_gpu_compute_event",
    ):
        assert name in profiling.__all__
        ours, theirs = (
            list(inspect.signature(getattr(module, name)).parameters.values())
            for module in (profiling, benchmark_utils)
        )
        # input: PyTorch has called it input_ as well.
        assert [p.name.rstrip("_") for p in theirs] == [p.name for p in ours]
        assert [p.default for p in theirs] == [p.default for p in ours]
    assert all(hasattr(profiling, name) for name in profiling.__all__)


# --- From traces --------------------------------------------------------------------------------


def test_only_kernels_that_compute() -> None:
    assert is_gpu_compute_event(kernel(0, 1))
    assert is_gpu_compute_event(kernel(0, 1, GEMM))
    for event in (
        copy(0, 1),
        kernel(0, 1, "Memset (Device)", cat="gpu_memset"),
        kernel(0, 1, "step", cat="gpu_user_annotation"),
        kernel(0, 1, ALL_REDUCE),
        {**kernel(0, 1), "ph": "i"},
        op(0, 1),
        {"ph": "M", "name": "process_labels", "args": {"labels": "GPU 0"}},
        {},
    ):
        assert not is_gpu_compute_event(event)


def test_sorted_events_and_their_duration() -> None:
    a, b, c = kernel(50, 10, GEMM), kernel(10, 30), kernel(30, 20, ATTENTION, stream=13)
    without_ts = {k: v for k, v in kernel(0, 1).items() if k != "ts"}
    events = [a, copy(0, 90), b, c, without_ts]
    assert get_sorted_gpu_events(events) == [b, c, a]
    assert get_sorted_gpu_mm_conv_events(events) == [c, a]
    # 10 to 40, 30 to 50, 50 to 60.
    assert get_duration([b, c, a]) == 50
    assert get_duration([a, c, b]) == 50
    assert get_duration([c]) == 20
    assert get_duration([]) == 0
    assert get_duration([kernel(0, 10), {"ts": 4}, kernel(5, -3)]) == 10


def test_pytorchs_own_example_with_what_leads_it_astray(tmp_path: Path) -> None:
    """Two kernels of 10 µs in 100. With annotations, copies and labels PyTorch says 0.9."""
    events = [
        {"ph": "M", "name": "process_labels", "pid": 0, "args": {"labels": "GPU 0"}},
        op(0, 100),
        kernel(10, 10),
        kernel(60, 10, GEMM),
        kernel(5, 90, "step", cat="gpu_user_annotation"),
        copy(30, 20),
        kernel(80, 10, ALL_REDUCE),
    ]
    path = str(write(tmp_path / "t.json", events))
    assert compute_utilization(path, HUNDRED_US) == pytest.approx((0.2, 0.1))


def test_two_gpus_are_averaged(tmp_path: Path) -> None:
    # 0.8 and 0.4, with 0.3 and none of it matrix work.
    events = [kernel(0, 80), kernel(10, 30, GEMM, stream=13), kernel(50, 40, device=1)]
    path = str(write(tmp_path / "t.json", events))
    assert compute_utilization(path, HUNDRED_US) == pytest.approx((0.6, 0.15))


def test_a_length_that_is_not_the_traces(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = str(write(tmp_path / "t.json", [kernel(0, 80)]))
    assert compute_utilization(path, 40e-6) == pytest.approx((2.0, 0.0))
    assert "not of the traced run" in caplog.text
    for length in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="give the seconds that were traced"):
            compute_utilization(path, length)


def test_no_gpu_is_no_zero(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = str(write(tmp_path / "t.json", [op(0, 80), launch(0, 1, 1)]))
    assert compute_utilization(path, HUNDRED_US) == (None, None)
    assert "no GPU activity in it" in caplog.text


def test_a_real_trace() -> None:
    path = str(DATA / "h100_inductor_step.json.gz")
    events = get_chrome_trace_events(path)
    kernels = [event for event in events if event.get("cat") == "kernel"]
    matrix = [e for e in kernels if "nvjet" in e["name"] or "cudnn" in e["name"]]
    # One stream: nothing overlaps, so that sums are unions.
    assert len({(e["pid"], e["tid"]) for e in kernels}) == 1
    length = 0.0344
    expected = [sum(e["dur"] for e in part) / 1e6 / length for part in (kernels, matrix)]
    assert compute_utilization(path, length) == pytest.approx(expected)
    durations = [
        get_duration(get_sorted_gpu_events(events)),
        get_duration(get_sorted_gpu_mm_conv_events(events)),
    ]
    assert [us / 1e6 / length for us in durations] == pytest.approx(expected)


def test_a_bad_file(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text("{")
    for reader in (get_chrome_trace_events, lambda name: compute_utilization(name, 1)):
        with pytest.raises(TraceError, match="not JSON, or cut short"):
            reader(str(path))


# --- On the CPU ---------------------------------------------------------------------------------


def names_in(path: Path) -> set[str]:
    return {event.get("name") for event in get_chrome_trace_events(str(path))}


def test_dump_on_the_cpu(tmp_path: Path) -> None:
    import torch
    from torch.profiler import ProfilerActivity

    path = tmp_path / "t.json"
    grad_modes: list[bool] = []
    seeds: list[float] = []

    def f(x: torch.Tensor, times: int) -> None:
        grad_modes.append(torch.is_grad_enabled())
        seeds.append(torch.rand(()).item())
        for _ in range(times):
            torch.mm(x, x)

    @contextlib.contextmanager
    def once() -> Iterator[None]:  # cannot be entered twice
        with torch.no_grad():
            yield

    seconds = dump_chrome_trace(
        f,
        torch.ones(8, 8),
        str(path),
        once(),
        [ProfilerActivity.CPU],
        num_runs=2,
        devices=["cpu"],
        kwargs_for_f={"times": 3},
        kwargs_for_profiler={"record_shapes": True},
    )
    assert 0 < seconds < 60
    assert grad_modes == [False] * (5 + 2 + 2)
    assert seeds[5:7] == seeds[7:9]  # both timed runs did the same
    products = [e for e in get_chrome_trace_events(str(path)) if e.get("name") == "aten::mm"]
    assert len(products) == 2 * 3
    assert products[0]["args"]["Input Dims"] == [[8, 8], [8, 8]]


def test_no_runs(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="num_runs is 0"):
        benchmark_utilization(lambda x: x, None, str(tmp_path), num_runs=0)


def test_benchmark_without_a_gpu(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    folder = tmp_path / "a" / "b"
    assert benchmark_utilization(lambda x: x @ x, torch.ones(4, 4), str(folder)) == (None, None)
    assert "aten::matmul" in names_in(folder / "tmp_chrome_trace.json")
    assert "no GPU activity" in caplog.text


def test_nothing_is_kept_between_calls(tmp_path: Path) -> None:
    """PyTorch's functions answer by the file that was read before."""
    two = str(write(tmp_path / "two.json", [kernel(0, 10), kernel(0, 20, device=5)]))
    one = str(write(tmp_path / "one.json", [kernel(0, 10)]))
    assert compute_utilization(two, HUNDRED_US) == pytest.approx((0.15, 0.0))
    assert compute_utilization(one, HUNDRED_US) == pytest.approx((0.1, 0.0))
    assert is_gpu_compute_event(kernel(0, 1, device=9))


# --- On a GPU -----------------------------------------------------------------------------------
