"""Device time on CUDA: the windows' figures against a full run of torch.profiler's."""

import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from proof import child, models, utilization
from proof.figures import Figure

NET = "net"  # of workloads.py; the other names are architectures
WARM_UP, STEPS, WINDOW_STEPS = 10, 20, 40
REGIONS = ("TORCHDYNAMO", "TORCHDYNAMO_BACKWARD")
_NO_KERNEL = ("Memcpy", "Memset", *REGIONS)


def device_time(name: str) -> list[Figure]:
    """Share of kernel time launched in regions, Triton kernels' times, busy time; two processes.

    The oracle is torch.profiler's own tree of events, in which it hangs each kernel on the op that
    launched it, by correlation id.
    """
    ours = child.call(in_windows, name, INSTRUMENTED_DEVICE_TIME="on", INSTRUMENTED_OPS="auto")
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        theirs = child.call(profiled, name, str(trace), INSTRUMENTED_OPS="auto")
        rows = [
            Figure(name, "device time captured, %", "warm", ours["pct"], theirs["pct"], 2, True),
            triton_row(name, ours["triton_us"], theirs["kernels"]),
        ]
        seen = utilization.of_trace(trace, name)
        rows += seen
        busy_us = next(row.ours for row in seen if row.figure == "busy, us")
        rows.append(Figure(name, "busy by its events, us", "warm", busy_us, theirs["busy_us"], 0.1))
    return rows


def triton_row(
    model: str, mean_us: dict[str, float | None], kernels: dict[str, list[float]]
) -> Figure:
    """``mean_us`` of a launch is ours, ``kernels`` has the profile's launches and µs, by name.

    Over all Triton kernels: the profile's launches at our means, against its own times. None where
    one has no time of ours.
    """
    triton = {name: found for name, found in kernels.items() if name.startswith("triton_")}
    means = [mean_us.get(name) for name in triton]
    ours = None
    if None not in means:
        launches = (count for count, _ in triton.values())
        ours = sum((mean or 0) * count for mean, count in zip(means, launches, strict=True)) / STEPS
    total = sum(time_us for _, time_us in triton.values())
    return Figure(model, "time of Triton kernels, us a step", "warm", ours, total / STEPS, 5)


def _step(name: str) -> Callable[[], object]:
    if name == NET:
        import workloads

        (step,) = workloads.net("cuda", "instrumented")
        return step
    import torch

    training = models.training(name, "cuda")
    compiled = torch.compile(training.model, backend="instrumented")
    return lambda: training.step(compiled)


def in_windows(name: str) -> dict[str, Any]:
    """In a process with ``INSTRUMENTED_DEVICE_TIME=on``."""
    import torch

    import instrumented_backend

    step = _step(name)
    for _ in range(WARM_UP + WINDOW_STEPS):
        step()
    torch.cuda.synchronize()
    report = instrumented_backend.report()
    triton: dict[str, list[float | None]] = {}
    for kernel in report.kernels:
        if kernel.language == "triton":
            triton.setdefault(kernel.kernel_name, []).append(kernel.device_time_us)
    assert report.ops.device is not None
    return {
        "pct": report.ops.device.pct_captured,
        # Two graphs' kernels of one name are one kernel to the profiler, and have one mean.
        "triton_us": {name: means[0] for name, means in triton.items()},
    }


def profiled(name: str, trace: str) -> dict[str, Any]:
    """In another process, as plain torch.profiler sees it."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    step = _step(name)
    for _ in range(WARM_UP):
        step()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        for _ in range(STEPS):
            step()
        torch.cuda.synchronize()
    found = figures_of(profiler.events(), torch.autograd.DeviceType.CPU)
    profiler.export_chrome_trace(trace)
    return found


def figures_of(events: Iterable[Any], cpu: Any) -> dict[str, Any]:
    """From FunctionEvents: the regions' share of kernel time, each kernel's launches and µs, and
    the µs in which a GPU was busy."""
    from torch._functorch.benchmark_utils import get_duration

    inside = 0.0
    kernels: dict[str, list[float]] = {}
    spans: dict[int, list[dict[str, float]]] = {}
    for event in events:
        if event.device_type == cpu:
            if event.kernels and in_region(event):
                inside += sum(k.duration for k in event.kernels if _is_kernel(k.name))
            continue
        if event.is_user_annotation or event.name in REGIONS:
            continue
        start, end = event.time_range.start, event.time_range.end
        spans.setdefault(event.device_index, []).append({"ts": start, "dur": end - start})
        if _is_kernel(event.name):
            found = kernels.setdefault(event.name, [0, 0.0])
            found[0] += 1
            found[1] += end - start
    total = sum(time_us for _, time_us in kernels.values())
    return {
        "pct": 100 * inside / total,
        "kernels": kernels,
        "busy_us": sum(
            get_duration(sorted(some, key=lambda span: span["ts"])) for some in spans.values()
        ),
    }


def _is_kernel(name: str) -> bool:
    return not name.startswith(_NO_KERNEL)


def in_region(event: Any) -> bool:
    """A FunctionEvent, by those that enclose it."""
    while event is not None:
        if event.name in REGIONS:
            return True
        event = event.cpu_parent
    return False
