"""What ``torch._functorch.benchmark_utils`` offers, under its own names, with right answers.

Only kernels count as compute, and of those neither communication nor copies; each GPU has its own
timeline; matrix work is recognised by `kernel_kind`, and attention belongs to it. Nothing is kept
between calls, and torch is imported only to run something.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from instrumented_backend.traces.event_stream import load_events
from instrumented_backend.traces.intervals import union
from instrumented_backend.traces.kernel_kinds import MATRIX_KINDS, kernel_kind
from instrumented_backend.traces.trace_file import KERNELS, read_trace
from instrumented_backend.traces.utilization import compute_spans

if TYPE_CHECKING:
    from torch.profiler import ProfilerActivity

_WARM_UP_RUNS = 5
_SEED = 1337

_log = logging.getLogger("instrumented_backend")

Utilization = tuple[float | None, float | None]


# --- From traces --------------------------------------------------------------------------------


def get_chrome_trace_events(filename: str) -> list[dict[str, Any]]:
    """All events of a trace, ``.json`` or ``.json.gz``, as they are; raises TraceError."""
    return load_events(Path(filename))


def is_gpu_compute_event(event: dict[str, Any]) -> bool:
    """A kernel that computes: no annotation, copy, memset or communication."""
    return (
        event.get("ph") == "X"
        and event.get("cat") in KERNELS
        and kernel_kind(str(event.get("name", ""))) not in ("communication", "copy")
    )


def get_sorted_gpu_events(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The kernels that compute, on all GPUs, by ``ts``; those without ts are left out."""
    chosen = [event for event in events if is_gpu_compute_event(event) and "ts" in event]
    return sorted(chosen, key=lambda event: event["ts"])


def get_sorted_gpu_mm_conv_events(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of those, the ones that multiply matrices, convolve, or compute attention."""
    return [
        event
        for event in get_sorted_gpu_events(events)
        if kernel_kind(str(event.get("name", ""))) in MATRIX_KINDS
    ]


def get_duration(sorted_gpu_events: list[dict[str, Any]]) -> float:
    """How many µs at least one of the events runs; they are taken as on one timeline."""
    if not sorted_gpu_events:
        return 0.0
    ts = np.array([event["ts"] for event in sorted_gpu_events], dtype=np.float64)
    duration = np.array([event.get("dur") or 0.0 for event in sorted_gpu_events], dtype=np.float64)
    start = np.rint((ts - ts[0]) * 1e3).astype(np.int64)
    end = start + np.rint(np.maximum(duration, 0.0) * 1e3).astype(np.int64)
    return union(start, end)[0].measure() / 1e3


def compute_utilization(filename: str, total_length: float) -> Utilization:
    """The shares of ``total_length`` (s) in which a GPU computed, and did matrix work.

    Each is the mean over the GPUs on which anything ran. (None, None), with a warning in the log,
    for a trace without GPU activity. Raises TraceError, or ValueError for no length.
    """
    if not total_length > 0:
        raise ValueError(f"total_length is {total_length}; give the seconds that were traced")
    spans = compute_spans(read_trace(filename, host=False))
    if not spans:
        _log.warning("%s: no GPU activity in it: utilisation is unknown", filename)
        return None, None
    computed = [compute.measure() / 1e9 / total_length for compute, _ in spans]
    multiplied = [matrix.measure() / 1e9 / total_length for _, matrix in spans]
    if max(computed) > 1:
        _log.warning(
            "%s: kernels ran for longer than total_length, %.6g s: it is not of the traced run",
            filename,
            total_length,
        )
    return sum(computed) / len(spans), sum(multiplied) / len(spans)


# --- Running and tracing ------------------------------------------------------------------------


def dump_chrome_trace(
    f: Callable[..., Any],
    input: Any,
    trace_filename: str,
    optimize_ctx: AbstractContextManager[Any],
    activities: "Sequence[ProfilerActivity]",
    num_runs: int = 1,
    devices: list[str] | None = None,
    kwargs_for_f: dict[str, Any] | None = None,
    kwargs_for_profiler: dict[str, Any] | None = None,
) -> float:
    """Trace ``num_runs`` runs of ``f(input, **kwargs_for_f)`` inside ``optimize_ctx``.

    Writes ``trace_filename`` and returns the seconds that as many runs take without the profiler,
    after five to warm up. torch's random seed is set before the runs, as PyTorch's own function
    does. ``devices`` are those to wait for; by default the current accelerator, if there is one.
    Activities that the machine cannot record are left out; if none is left, the CPU's are recorded.
    """
    seconds, _ = _run_and_trace(
        f,
        input,
        trace_filename,
        optimize_ctx,
        activities,
        num_runs,
        devices,
        kwargs_for_f or {},
        kwargs_for_profiler or {},
    )
    return seconds


def benchmark_utilization(
    f: Callable[..., Any],
    input: Any,
    trace_folder: str,
    optimize_ctx: AbstractContextManager[Any] | None = None,
    trace_file_name: str = "tmp_chrome_trace",
    num_runs: int = 1,
) -> Utilization:
    """`compute_utilization` of ``num_runs`` runs of ``f(input)``, from the first to the last.

    The kernels and the length are of the same, profiled, run, so that the shares cannot pass 1.
    Leaves the trace in ``trace_folder/trace_file_name.json``. On a machine without a GPU the trace
    is of the CPU, and the answer (None, None).
    """
    from torch.profiler import ProfilerActivity

    Path(trace_folder).mkdir(parents=True, exist_ok=True)
    filename = str(Path(trace_folder) / f"{trace_file_name}.json")
    _, profiled_seconds = _run_and_trace(
        f,
        input,
        filename,
        optimize_ctx or contextlib.nullcontext(),
        [ProfilerActivity.CUDA],
        num_runs,
        devices=None,
        kwargs_for_f={},
        kwargs_for_profiler={},
    )
    return compute_utilization(filename, profiled_seconds)


def _run_and_trace(
    f: Callable[..., Any],
    input: Any,
    trace_filename: str,
    optimize_ctx: AbstractContextManager[Any],
    activities: "Sequence[ProfilerActivity]",
    num_runs: int,
    devices: list[str] | None,
    kwargs_for_f: dict[str, Any],
    kwargs_for_profiler: dict[str, Any],
) -> tuple[float, float]:
    """The seconds of the runs without the profiler, and with it."""
    import torch
    from torch.profiler import ProfilerActivity, profile, supported_activities

    if num_runs < 1:
        raise ValueError(f"num_runs is {num_runs}; it must be 1 or more")

    def timed(runs: int) -> float:
        torch.manual_seed(_SEED)
        _synchronize(devices)
        start = time.perf_counter()
        for _ in range(runs):
            f(input, **kwargs_for_f)
            _synchronize(devices)
        return time.perf_counter() - start

    supported = supported_activities()
    chosen = [activity for activity in activities if activity in supported]
    if not chosen:
        _log.warning("none of the activities can be recorded here: recording the CPU's")
        chosen = [ProfilerActivity.CPU]
    # Entered once: a generator's context manager cannot be entered again.
    with optimize_ctx:
        timed(_WARM_UP_RUNS)
        seconds = timed(num_runs)
        with profile(activities=chosen, **kwargs_for_profiler) as profiler:
            profiled_seconds = timed(num_runs)
    profiler.export_chrome_trace(trace_filename)
    return seconds, profiled_seconds


def _synchronize(devices: list[str] | None) -> None:
    import torch

    if not torch.accelerator.is_available():
        return
    if devices is None:
        torch.accelerator.synchronize()
        return
    for device in map(torch.device, devices):
        if device.type != "cpu":
            torch.accelerator.synchronize(device.index)  # None: the current one
