"""The share of a run in which a GPU was busy: ``benchmark_utilization`` on runs of its own."""

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from proof import child
from proof.figures import Figure, nearest

SIZES = (256, 2048, 8192)
RUNS, ROUNDS = 20, 5


def busy() -> list[Figure]:
    """On CUDA, a process for each size of the matrices.

    The oracle: the kernels' times by ``profiler.events()``, which doesn't go through the trace
    file, over the length of the run by Python's clock.
    """
    rows = []
    for size in SIZES:
        ours, theirs = child.call(shares, size)
        for figure, mine, true in zip(("busy", "matrix work"), ours, theirs, strict=True):
            model = f"products of {size}"
            rows.append(Figure(model, f"{figure}, %", "-", mine, true, 2, in_points=True))
    share, seconds, kernels_s = child.call(without_a_pause)
    return [
        *rows,
        Figure("two streams", "matrix work, %", "-", share, nearest(share, 90, 100), 0, True),
        # It waits for the kernels: their runs take no less without the profiler, by half.
        Figure("three products", "seconds", "-", seconds, nearest(seconds, 0.5 * kernels_s), 0),
    ]


def _busy_and_idle(x: Any) -> None:
    """Some matrix work, some pointwise, and some time in which nothing runs."""
    for _ in range(4):
        y = x @ x
        y.add_(1).mul_(0.5)
        time.sleep(0.001)


def shares(size: int) -> tuple[list[float | None], list[float]]:
    """Ours and the oracle's, in percent: medians of rounds, in turns."""
    import torch
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    from instrumented_backend.profiling import benchmark_utilization

    x = torch.randn(size, size, device="cuda", dtype=torch.bfloat16) / size
    ours: list[tuple[float | None, ...]] = []
    theirs: list[list[float]] = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(ROUNDS):
            ours.append(benchmark_utilization(_busy_and_idle, x, folder, num_runs=RUNS))
            with profile(activities=[ProfilerActivity.CUDA]) as profiler:
                torch.cuda.synchronize()
                start = time.perf_counter()
                for _ in range(RUNS):
                    _busy_and_idle(x)
                    torch.cuda.synchronize()
                length_us = 1e6 * (time.perf_counter() - start)
            kernels = [
                event
                for event in profiler.events()
                if event.device_type == DeviceType.CUDA
                and not event.name.startswith(("Mem", "Activity"))
            ]
            products = [event for event in kernels if "elementwise" not in event.name]
            # One stream: nothing overlaps, so that sums are unions.
            theirs.append(
                [
                    100 * sum(event.time_range.elapsed_us() for event in part) / length_us
                    for part in (kernels, products)
                ]
            )
    return (
        [_median_pct(column) for column in zip(*ours, strict=True)],
        [statistics.median(column) for column in zip(*theirs, strict=True)],
    )


def _median_pct(values: tuple[float | None, ...]) -> float | None:
    """None if one is."""
    known = [100 * value for value in values if value is not None]
    return statistics.median(known) if len(known) == len(values) else None


def without_a_pause() -> tuple[float, float, float]:
    """Percent of matrix work where nothing else is done; seconds of three products, their kernels'.

    On two streams, whose kernels overlap.
    """
    import torch
    from torch.profiler import ProfilerActivity

    from instrumented_backend.profiling import (
        benchmark_utilization,
        dump_chrome_trace,
        get_chrome_trace_events,
        get_duration,
        get_sorted_gpu_mm_conv_events,
    )

    second = torch.cuda.Stream()

    def products(x: Any) -> None:
        second.wait_stream(torch.cuda.current_stream())
        for _ in range(20):
            x @ x
            with torch.cuda.stream(second):
                x @ x

    large = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) / 8192
    x = torch.randn(4096, 4096, device="cuda")
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with tempfile.TemporaryDirectory() as folder:
        _, matrix = benchmark_utilization(products, large, folder, num_runs=3)
        path = str(Path(folder) / "products.json")
        seconds = dump_chrome_trace(
            lambda x: x @ x, x, path, torch.no_grad(), activities, num_runs=3
        )
        events = get_sorted_gpu_mm_conv_events(get_chrome_trace_events(path))
    assert matrix is not None, "on a GPU"
    return 100 * matrix, seconds, get_duration(events) / 1e6
