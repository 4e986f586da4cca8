"""GPU utilisation: the command ``trace`` against PyTorch's and others' own arithmetic."""

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from proof.figures import Figure

DATA = Path(__file__).parents[2] / "tests" / "data"
RECORDED = ("h100_eager_step", "h100_inductor_step")
_KERNELS = ("kernel",)
_ALL = ("kernel", "gpu_memcpy", "gpu_memset")


def recorded() -> list[Figure]:
    """Of the traces of an H100 among the tests' data: no GPU is needed."""
    return [
        row
        for name in RECORDED
        for row in of_trace(DATA / f"{name}.json.gz", name.replace("_", " "))
    ]


def of_trace(path: Path, model: str) -> list[Figure]:
    """Busy time and share, and kernel time, of all GPUs in a trace.

    The oracle: ``get_duration`` of PyTorch's ``benchmark_utils`` for the union, given the kernels
    alone, or those and the copies (it takes annotations for work); the window by the
    first and the last event, but for the span of the profiler itself.
    """
    from torch._functorch.benchmark_utils import get_duration

    from instrumented_backend.profiling import read_trace, time_of

    ours = time_of(read_trace(path))
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt") as file:
        events = [e for e in json.load(file)["traceEvents"] if e.get("ph") == "X"]

    def union_us(categories: tuple[str, ...]) -> float:
        by_gpu: dict[Any, list[dict[str, Any]]] = defaultdict(list)
        for event in events:
            if event.get("cat") in categories:
                by_gpu[event["args"]["device"]].append(event)
        return sum(
            get_duration(sorted(some, key=lambda event: event["ts"])) for some in by_gpu.values()
        )

    program = [event for event in events if event.get("cat") != "Trace"]
    start = min(event["ts"] for event in program)
    window = max(event["ts"] + event["dur"] for event in program) - start
    gpus = len(ours.devices)
    busy = sum(device.busy_us for device in ours.devices)
    compute = sum(device.compute_us + device.communication_us for device in ours.devices)
    busy_share = 100 * busy / (ours.window_us * gpus)
    true_share = 100 * union_us(_ALL) / (window * gpus)
    kernels = sum(kernel.total_us for device in ours.devices for kernel in device.kernels)
    true_kernels = sum(event["dur"] for event in events if event.get("cat") == "kernel")
    return [
        Figure(model, "busy, us", "-", busy, union_us(_ALL), 0.1),
        Figure(model, "busy, % of the window", "-", busy_share, true_share, 0.1, in_points=True),
        Figure(model, "computing, us", "-", compute, union_us(_KERNELS), 0.1),
        Figure(model, "kernel time, us", "-", kernels, true_kernels, 0.1),
    ]
