"""Utilisation on a GPU."""

import contextlib
from pathlib import Path

import pytest

from instrumented_backend.profiling import (
    benchmark_utilization,
    dump_chrome_trace,
    get_chrome_trace_events,
    get_sorted_gpu_events,
    get_sorted_gpu_mm_conv_events,
)


def names_in(path: Path) -> set[str]:
    return {event.get("name") for event in get_chrome_trace_events(str(path))}


def test_matrix_work_is_a_part_of_all(tmp_path: Path) -> None:
    import torch

    def products(x: torch.Tensor) -> None:
        for _ in range(4):
            y = x @ x
            y.add_(1).mul_(0.5)

    x = torch.randn(256, 256, device="cuda", dtype=torch.bfloat16)
    utilisation, matrix = benchmark_utilization(products, x, str(tmp_path), num_runs=20)
    assert utilisation is not None and matrix is not None
    assert 0 < matrix < utilisation <= 1
    kernels = get_sorted_gpu_events(
        get_chrome_trace_events(str(tmp_path / "tmp_chrome_trace.json"))
    )
    # In each run 4 products, perhaps in parts, and 8 pointwise kernels.
    pointwise = [event for event in kernels if "elementwise" in event["name"]]
    assert len(pointwise) == 20 * 8 and len(kernels) - len(pointwise) >= 20 * 4


def test_a_busy_gpu_is_never_busier_than_always(tmp_path: Path) -> None:
    import torch

    x = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) / 8192
    second = torch.cuda.Stream()

    def f(x: torch.Tensor) -> None:
        second.wait_stream(torch.cuda.current_stream())
        for _ in range(20):
            x @ x
            with torch.cuda.stream(second):
                x @ x

    utilisation, matrix = benchmark_utilization(f, x, str(tmp_path), num_runs=3)
    assert utilisation is not None and matrix is not None
    assert 0 < matrix <= utilisation <= 1


def test_dump_on_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from torch.profiler import ProfilerActivity

    x = torch.randn(4096, 4096, device="cuda")
    path = tmp_path / "t.json.gz"
    waited: list[None] = []
    synchronize = torch.accelerator.synchronize
    monkeypatch.setattr(
        torch.accelerator, "synchronize", lambda *args: waited.append(synchronize(*args))
    )
    dump_chrome_trace(
        lambda x: x @ x,
        x,
        str(path),
        torch.no_grad(),
        [ProfilerActivity.CPU, ProfilerActivity.CUDA],
        num_runs=3,
    )
    assert path.read_bytes()[:2] == b"\x1f\x8b"
    events = get_chrome_trace_events(str(path))
    products = get_sorted_gpu_mm_conv_events(events)
    assert len(products) == 3
    # Before and after each: of 5 runs to warm up, of 3 without the profiler, of 3 with it.
    assert len(waited) >= (1 + 5) + (1 + 3) + (1 + 3)
    assert "aten::mm" in names_in(path)


def test_captured_share_of_this_backends_own_profile(tmp_path: Path) -> None:
    """Kernels launched inside and outside a compiled graph, by its own marks."""
    import torch
    from torch.profiler import ProfilerActivity

    from instrumented_backend.profiling import read_trace, time_of

    compiled = torch.compile(lambda x: (x + 1).relu() * 2, backend="instrumented")
    x = torch.randn(4096, 4096, device="cuda", requires_grad=True)

    def f(x: torch.Tensor) -> None:
        compiled(x).sum().backward()  # the sum and its backward run eagerly

    path = tmp_path / "t.json"
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    dump_chrome_trace(f, x, str(path), contextlib.nullcontext(), activities, num_runs=3)
    time = time_of(read_trace(path))
    (device,) = time.devices
    assert time.captured_by == "TORCHDYNAMO"
    triton = sum(k.total_us for k in device.kernels if k.name.startswith("triton_"))
    assert device.captured_us == pytest.approx(triton)
    assert device.not_captured_us is not None and device.not_captured_us > 0
    assert device.capture_unknown_us == 0
