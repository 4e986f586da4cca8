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
_CODE = "## Call CompiledFxGraph"
_NO_OP = ("autograd::", "torch::autograd::")
# Of an extern call: its op, the shapes of its tensors, the calls and their µs.
Externs = list[tuple[str, list[list[int]], float, float | None]]


def device_time(name: str) -> list[Figure]:
    """Share of kernel time launched in regions, times of Triton kernels and of extern calls, busy
    time; two processes.

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
            *extern_rows(name, ours["externs"], theirs["externs"]),
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


def extern_rows(model: str, ours: Externs, theirs: Externs) -> list[Figure]:
    """Of each op's calls, and of those of one shape the ones that are off by most; µs of a call.

    ``theirs`` are the profile's, in which an op has its shapes as it was called. What launched no
    kernel in it has no time.
    """
    rows = []
    for op in sorted({op for op, _, _, time_us in theirs if time_us}):
        mine = _mean([each for each in ours if each[0] == op])
        true = _mean([each for each in theirs if each[0] == op])
        rows.append(Figure(model, f"time of {op[:30]}, us a call", "warm", mine, true or 0, 5))
    by_shapes = []
    for op, shapes, calls, time_us in theirs:
        same = [each for each in ours if each[0] == op and each[1] == shapes[: len(each[1])]]
        if same and time_us:
            mine = _mean(same)
            what = f"time of {op[:20]} {shapes[:2]}, us a call"
            by_shapes.append(Figure(model, what, "warm", mine, time_us / calls, 5))
    worst = sorted(by_shapes, key=lambda row: row.error if row.error is not None else float("inf"))
    return rows + worst[-1:]


def _mean(externs: Externs) -> float | None:
    """µs of a call; None where one is not known, and of none."""
    times = [time_us for *_, time_us in externs]
    calls = sum(calls for _, _, calls, _ in externs)
    if None in times or not calls:
        return None
    return sum(time_us or 0 for time_us in times) / calls


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
    from instrumented_backend.kernels.wrapper import op_of

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
    externs: Externs = [
        (
            op_of(kernel.kernel_name),
            [list(shape) for key, shape in kernel.arg_shapes.items() if key != "out"],  # type: ignore[arg-type]
            kernel.device_calls or 0,
            kernel.device_time_total_us,
        )
        for kernel in report.kernels
        if kernel.language == "extern"
    ]
    return {
        "pct": report.ops.device.pct_captured,
        # Two graphs' kernels of one name are one kernel to the profiler, and have one mean.
        "triton_us": {name: means[0] for name, means in triton.items()},
        "externs": externs,
    }


def profiled(name: str, trace: str) -> dict[str, Any]:
    """In another process, as plain torch.profiler sees it."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    step = _step(name)
    for _ in range(WARM_UP):
        step()
    torch.cuda.synchronize()
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(activities=activities, record_shapes=True) as profiler:
        for _ in range(STEPS):
            step()
        torch.cuda.synchronize()
    found = figures_of(profiler.events(), torch.autograd.DeviceType.CPU)
    profiler.export_chrome_trace(trace)
    return found


def figures_of(events: Iterable[Any], cpu: Any) -> dict[str, Any]:
    """From FunctionEvents: the regions' share of kernel time, each kernel's launches and µs, the
    ops in regions with theirs, and the µs in which a GPU was busy."""
    from torch._functorch.benchmark_utils import get_duration

    inside = 0.0
    kernels: dict[str, list[float]] = {}
    spans: dict[int, list[dict[str, float]]] = {}
    externs: dict[str, tuple[str, list[list[int]], list[float]]] = {}
    for event in events:
        if event.device_type == cpu:
            if event.kernels and in_region(event):
                inside += sum(k.duration for k in event.kernels if _is_kernel(k.name))
            if is_extern_call(event):
                shapes = [list(shape) for shape in event.input_shapes or () if shape]
                _, _, times = externs.setdefault(f"{event.name}{shapes}", (event.name, shapes, []))
                times.append(kernels_us(event))
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
        "externs": [(op, shapes, len(us), sum(us)) for op, shapes, us in externs.values()],
        "busy_us": sum(
            get_duration(sorted(some, key=lambda span: span["ts"])) for some in spans.values()
        ),
    }


def _is_kernel(name: str) -> bool:
    return not name.startswith(_NO_KERNEL)


def is_extern_call(event: Any) -> bool:
    """An op in the generated code of a region, as torch marks it, that no other op encloses."""
    if not _is_op(event.name):
        return False
    above = event.cpu_parent
    while above is not None and not above.name.startswith(_CODE):
        if _is_op(above.name):
            return False
        above = above.cpu_parent
    return in_region(above)


def _is_op(name: str) -> bool:
    return "::" in name and not name.startswith(_NO_OP)


def kernels_us(event: Any) -> float:
    """Of all that it launched, by itself or in the ops inside it."""
    own = sum(kernel.duration for kernel in event.kernels if _is_kernel(kernel.name))
    return float(own + sum(kernels_us(child) for child in event.cpu_children))


def in_region(event: Any) -> bool:
    """A FunctionEvent, by those that enclose it."""
    while event is not None:
        if event.name in REGIONS:
            return True
        event = event.cpu_parent
    return False
