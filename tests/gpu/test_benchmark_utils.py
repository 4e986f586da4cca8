"""Utilisation on a GPU, against CUPTI's own kernel times."""

import contextlib
import statistics
from pathlib import Path
from typing import Any

import pytest

from instrumented_backend.profiling import (
    benchmark_utilization,
    dump_chrome_trace,
    get_chrome_trace_events,
    get_duration,
    get_sorted_gpu_mm_conv_events,
)


def names_in(path: Path) -> set[str]:
    return {event.get("name") for event in get_chrome_trace_events(str(path))}


def busy_and_idle(x: Any) -> None:
    """Some matrix work, some pointwise, and some time in which nothing runs."""
    import time

    for _ in range(4):
        y = x @ x
        y.add_(1).mul_(0.5)
        time.sleep(0.001)


@pytest.mark.parametrize("size", [256, 2048, 8192])
def test_benchmark_against_cuptis_own_kernel_times(tmp_path: Path, size: int) -> None:
    """The kernels' times by `profiler.events()`, which doesn't go through the trace file."""
    import time

    import torch
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    runs = 20
    x = torch.randn(size, size, device="cuda", dtype=torch.bfloat16) / size
    rounds = []
    for _ in range(5):  # in turns: a run in which the machine pauses is another
        ours = benchmark_utilization(busy_and_idle, x, str(tmp_path), num_runs=runs)
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(runs):
                busy_and_idle(x)
                torch.cuda.synchronize()
            length = time.perf_counter() - start
        kernels = [
            e
            for e in profiler.events()
            if e.device_type == DeviceType.CUDA and not e.name.startswith(("Mem", "Activity"))
        ]
        products = [e for e in kernels if "elementwise" not in e.name]
        # In each run 4 products, perhaps in parts, and 8 pointwise kernels.
        assert len(kernels) - len(products) == runs * 8 and len(products) >= runs * 4
        # One stream: nothing overlaps, so that sums are unions.
        expected = [
            sum(e.time_range.elapsed_us() for e in part) / 1e6 / length
            for part in (kernels, products)
        ]
        assert ours[0] is not None and ours[1] is not None
        assert 0 < ours[1] < ours[0] <= 1
        rounds.append((*ours, *expected))
        print(*(f"{share:.4f}" for share in rounds[-1]))  # -rP shows it
    medians = [statistics.median(column) for column in zip(*rounds, strict=True)]
    assert medians[:2] == pytest.approx(medians[2:], abs=0.02)


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
    assert 0.9 < matrix <= utilisation <= 1


def test_dump_on_a_gpu(tmp_path: Path) -> None:
    import torch
    from torch.profiler import ProfilerActivity

    x = torch.randn(4096, 4096, device="cuda")
    path = tmp_path / "t.json.gz"
    seconds = dump_chrome_trace(
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
    # Waited for: three products take no less without the profiler than their kernels, by half.
    assert seconds > 0.5 * get_duration(products) / 1e6
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
