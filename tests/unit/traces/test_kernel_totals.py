"""Kernel time by name, and who launched it, by hand-computed traces; and a real one."""

from pathlib import Path
from typing import Any

import pytest
from traces import GEMM, POINTWISE, Event, annotation, copy, kernel, launch, op, write

from instrumented_backend.profiling import read_trace
from instrumented_backend.traces.kernel_totals import KernelTotal, TraceTotals, totals_of


@pytest.fixture
def totals(tmp_path: Path) -> Any:
    def totals(*events: Event) -> TraceTotals:
        return totals_of(read_trace(write(tmp_path / "t.json", list(events))))

    return totals


def test_regions_capture_what_they_launch(totals: Any) -> None:
    found = totals(
        op(0, 100),
        annotation(10, 20, "TORCHDYNAMO"),
        annotation(40, 10, "TORCHDYNAMO_BACKWARD", tid=2),
        launch(12, 1, 1),
        kernel(15, 5, correlation=1),
        launch(45, 1, 2, tid=2),
        kernel(50, 7, correlation=2),
        launch(35, 1, 3),  # between the regions
        kernel(57, 3, correlation=3),
        launch(45, 1, 4),  # while a region is open on another thread
        kernel(60, 4, GEMM, correlation=4),
        kernel(70, 2, GEMM),  # launched before the trace began
        copy(80, 10),  # no kernel
    )
    assert found.kernels == {
        # 5 + 7 captured and 3 not, in µs.
        (POINTWISE, 0): KernelTotal(3, 15_000, 2, 12_000),
        (GEMM, 0): KernelTotal(2, 6_000, 0, 0),
    }
    assert (found.window_ns, found.busy_ns, found.unlinked_ns) == (100_000, 21_000, 2_000)


def test_busy_is_a_union_and_time_is_a_sum(totals: Any) -> None:
    found = totals(
        op(0, 100),
        kernel(10, 30),
        kernel(20, 30, stream=13),  # together 10 to 50
        kernel(20, 30, device=1),
    )
    assert found.busy_ns == 40_000 + 30_000
    assert found.kernels == {
        (POINTWISE, 0): KernelTotal(2, 60_000, 0, 0),
        (POINTWISE, 1): KernelTotal(1, 30_000, 0, 0),
    }


def test_windows_add_up(totals: Any) -> None:
    region, call = annotation(0, 20, "TORCHDYNAMO"), launch(2, 1, 1)
    first = totals(op(0, 50), region, call, kernel(5, 5, correlation=1))
    first.add(totals(op(0, 30), kernel(5, 7), kernel(20, 2, GEMM)))
    assert first.kernels == {
        (POINTWISE, 0): KernelTotal(2, 12_000, 1, 5_000),
        (GEMM, 0): KernelTotal(1, 2_000, 0, 0),
    }
    assert (first.window_ns, first.busy_ns, first.unlinked_ns) == (80_000, 14_000, 9_000)


def test_other_marks_are_not_ours(totals: Any) -> None:
    """Dynamo's own regions hold what runs eagerly after a graph break, too."""
    found = totals(
        annotation(0, 50, "Torch-Compiled Region: 0/0"),
        launch(2, 1, 1),
        kernel(5, 5, correlation=1),
    )
    assert found.kernels == {(POINTWISE, 0): KernelTotal(1, 5_000, 0, 0)}
