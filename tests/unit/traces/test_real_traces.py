"""Recorded traces, computed twice: another way, in exact decimals."""

import gzip
import json
from collections import Counter, defaultdict
from decimal import Decimal

import pytest
from paths import DATA
from traces import Event

from instrumented_backend.profiling import read_trace, time_of

# --- Real traces --------------------------------------------------------------------------------


def swept(events: list[Event]) -> Decimal:
    """How long at least one event runs: a sweep over starts and ends, in exact decimals."""
    changes: Counter[Decimal] = Counter()
    for e in events:
        changes[e["ts"]] += 1
        changes[e["ts"] + e["dur"]] -= 1
    total, running, since = Decimal(0), 0, Decimal(0)
    for time in sorted(changes):
        if running:
            total += time - since
        running += changes[time]
        since = time
    return total


@pytest.mark.parametrize("name", ["h100_eager_step", "h100_inductor_step"])
def test_a_real_trace_against_another_computation(name: str) -> None:
    path = DATA / f"{name}.json.gz"
    with gzip.open(path) as file:
        events = json.load(file, parse_float=Decimal)["traceEvents"]
    by_category = defaultdict(list)
    for e in events:
        by_category[e.get("cat")].append(e)
    kernels, memsets = by_category["kernel"], by_category["gpu_memset"]
    matrix = [e for e in kernels if e["name"].startswith(("nvjet_", "cudnn_generated_fort_native"))]
    helpers = [e for e in kernels if "cudnn::fusion" in e["name"]]
    graphs = [e for e in by_category["cpu_op"] if e["name"].startswith("## Call CompiledFxGraph")]
    calls = {
        e["args"]["correlation"]: e
        for e in by_category["cuda_runtime"] + by_category["cuda_driver"]
    }
    captured = Decimal(0)
    for e in kernels:
        call = calls[e["args"]["correlation"]]
        inside = (
            g["tid"] == call["tid"] and g["ts"] <= call["ts"] < g["ts"] + g["dur"] for g in graphs
        )
        captured += e["dur"] if any(inside) else 0

    (device,) = time_of(read_trace(path)).devices
    # The same to the nanosecond.
    close = lambda value: pytest.approx(float(value), rel=0, abs=1e-6)  # noqa: E731
    assert device.busy_us == close(swept(kernels + memsets))
    assert device.compute_us == close(swept(kernels))
    assert device.copy_us == close(swept(memsets))
    assert device.matrix_us == close(swept(matrix + helpers))
    assert device.gemm_us == close(swept([e for e in matrix if "nvjet" in e["name"]]))
    assert device.captured_us == close(captured)
    assert device.captured_us + device.not_captured_us == close(sum(e["dur"] for e in kernels))
    times: Counter[str] = Counter()
    for e in kernels:
        times[e["name"]] += e["dur"]
    assert {k.name: k.total_us for k in device.kernels} == pytest.approx(
        {kernel: float(total) for kernel, total in times.items()}
    )
    assert device.idle_us == close(
        Decimal(device.idle_host_us + device.idle_launch_us + device.idle_kernel_gap_us)
    )
    # Both by cuBLAS and by cuDNN, and not a sliver.
    assert 0.25 < device.matrix_us / device.compute_us < 0.35
    assert (captured > 0) == (name == "h100_inductor_step")


@pytest.mark.parametrize("rank", [0, 1])
def test_real_ranks_that_communicate(rank: int) -> None:
    """Rank 0 waits for the other inside NCCL's kernels, for most of the time with nothing else."""
    path = DATA / f"h200_ddp_rank{rank}.json.gz"
    with gzip.open(path) as file:
        events = json.load(file, parse_float=Decimal)["traceEvents"]
    work = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    reduce = [e for e in work if e["name"].startswith("ncclDevKernel_AllReduce")]
    compute = [e for e in work if e["cat"] == "kernel" and e not in reduce]
    assert len(reduce) == 8  # four buckets, two steps

    time = time_of(read_trace(path))
    assert (time.rank, time.world_size) == (rank, 2)
    (device,) = time.devices
    assert (device.device, device.name) == (rank, "NVIDIA H200")
    close = lambda value: pytest.approx(float(value), rel=0, abs=1e-6)  # noqa: E731
    assert device.busy_us == close(swept(work))
    assert device.compute_us == close(swept(compute))
    assert device.communication_us == close(swept(reduce))
    assert device.exposed_communication_us == close(swept(reduce + compute) - swept(compute))
    # Dynamo compiled nothing of it but the frames that break; they launched kernels all the same.
    assert device.captured_us is None
    assert (device.exposed_communication_us > 0.4 * time.window_us) == (rank == 0)
