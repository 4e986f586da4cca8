"""A program's truth on a GPU: what torch.profiler's events tell of its parts."""

from types import SimpleNamespace
from typing import Any

import pytest
from truth_programs.gpu_oracle import PART, _shares

CPU = "cpu"
GRAPH = SimpleNamespace(name="TORCHDYNAMO", cpu_parent=None)


def event(
    name: str, start: float, end: float, kernels: list[tuple[str, float]], parent: Any = None
) -> Any:
    launched = [SimpleNamespace(name=kernel, duration=us) for kernel, us in kernels]
    moments = SimpleNamespace(start=start, end=end)
    return SimpleNamespace(
        name=name, time_range=moments, kernels=launched, cpu_parent=parent, device_type=CPU
    )


def test_a_gpu_that_waits_in_a_collective_is_not_busy() -> None:
    """Of 100 us it computes for 30, of which 20 in a graph, and is in a collective for 60."""
    told = _shares(
        [
            event(PART + "step", 0, 100, []),
            event("triton_poi_fused_add_0", 10, 12, [("triton_poi_fused_add_0", 20)], GRAPH),
            event("aten::add", 20, 22, [("vectorized_elementwise_kernel", 10)]),
            event("nccl:all_reduce", 30, 32, [("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 60)]),
        ],
        CPU,
    )
    assert told["busy"] == pytest.approx(0.3)
    assert told["shares"] == {"step": pytest.approx(20 / 90)}
    assert told["each_s"] == {"step": pytest.approx(20e-6)}
