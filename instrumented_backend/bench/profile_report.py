"""What a profile of some runs says of a device's kernels, by category, in PyTorch's words."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from instrumented_backend.records.escapes import shown
from instrumented_backend.traces.intervals import union

PROFILE_CATEGORIES = (
    "triton_pointwise",
    "triton_reduction",
    "triton_persistent_reduction",
    "triton_unknown",
    "unknown",
)
_PREFIXES = {
    "triton_poi": "triton_pointwise",
    "triton_red": "triton_reduction",
    "triton_per": "triton_persistent_reduction",
    "triton_": "triton_unknown",
}
# What CUPTI itself takes, and waits: torch's profiler has them among the device's events.
_NO_WORK = frozenset(
    {"Activity Buffer Request", "Buffer Flush", "Command Buffer Full", "Driver Compiler"}
    | {"Instrumentation", "Lazy Function Loading", "Resource", "Runtime Triggered Module Loading"}
    | {"UVM Activity Init", "Context Sync", "Event Sync", "Stream Sync", "Stream Wait Event"}
)
_MAX_NAME = 120


@dataclass
class ProfileEvent:
    """One kernel in a profile. ``count`` is of one run, the mean over the runs."""

    category: str
    key: str
    self_device_time_ms: float
    count: float


def parse_profile_event_list(
    benchmark_name: str,
    event_list: Iterable[Any],
    wall_time_ms: float,
    nruns: int,
    device_name: str,
) -> None:
    """Print what a profile of ``nruns`` runs says of the device's kernels, by category.

    ``event_list`` is ``profile.events()``, or the ``key_averages()``, from which the time in which
    streams overlap cannot be told. ``wall_time_ms`` is that of one run. ``device_name`` is
    ``"cuda"`` or the like; for ``"cpu"`` or ``""`` the events are the CPU's own.
    """
    on_cpu = device_name.lower() in ("", "cpu")
    events = [event for event in event_list if _is_work(event, on_cpu)]
    by_category = _by_category(events, nruns, on_cpu)
    label = "CPU" if on_cpu else device_name.upper()
    shares = dict.fromkeys(PROFILE_CATEGORIES, 0.0)
    for category, found in by_category.items():
        total_ms = sum(event.self_device_time_ms for event in found)
        shares[category] = _percent(total_ms, wall_time_ms)
        _print_category(category, found, total_ms, wall_time_ms, label)
    busy_ms, note = _busy_ms(events, nruns, on_cpu)
    busy = _percent(busy_ms, wall_time_ms)
    if busy > 100:
        busy = 100.0
        note = note or "the profiled runs took longer than the wall time"
    print(f"\nPercent of time when {label} is busy: {busy:.2f}%" + (f" ({note})" if note else ""))
    print(f"Total wall time {wall_time_ms:.3f} ms")
    columns = [f"{share:.2f}%" for share in shares.values()]
    print(
        f"Output for tabulate: {benchmark_name}, "
        + ", ".join([*columns, f"{busy:.2f}%", f"{wall_time_ms:.3f}ms"])
    )


def _is_work(event: Any, on_cpu: bool) -> bool:
    from torch.autograd import DeviceType  # type: ignore[attr-defined]  # public, but not in __all__

    if getattr(event, "is_legacy", False):
        raise ValueError("events of the legacy profiler have no device times")
    if on_cpu:
        return bool(event.device_type == DeviceType.CPU)
    # An annotation's span on the device is not work of its own.
    is_annotation = getattr(event, "is_user_annotation", False)
    return event.device_type != DeviceType.CPU and not is_annotation and event.key not in _NO_WORK


def _self_time_us(event: Any, on_cpu: bool) -> float:
    return float(event.self_cpu_time_total if on_cpu else event.self_device_time_total)


def _by_category(events: list[Any], nruns: int, on_cpu: bool) -> dict[str, list[ProfileEvent]]:
    """In the order of the categories, each sorted by time, without those that took none."""
    kernels: dict[str, ProfileEvent] = {}
    for event in events:
        known = kernels.setdefault(event.key, ProfileEvent(_category(event.key), event.key, 0, 0))
        known.self_device_time_ms += _self_time_us(event, on_cpu) / 1e3 / nruns
        known.count += event.count / nruns
    found = {
        category: sorted(
            (kernel for kernel in kernels.values() if kernel.category == category),
            key=lambda kernel: kernel.self_device_time_ms,
            reverse=True,
        )
        for category in PROFILE_CATEGORIES
    }
    return {category: events for category, events in found.items() if events}


def _category(key: str) -> str:
    return next((_PREFIXES[prefix] for prefix in _PREFIXES if key.startswith(prefix)), "unknown")


def _print_category(
    category: str, events: list[ProfileEvent], total_ms: float, wall_time_ms: float, label: str
) -> None:
    from tabulate import tabulate

    def percent(ms: float) -> str:
        return f"{_percent(ms, wall_time_ms):.2f}%"

    rows: list[list[Any]] = [
        [
            shown(event.key[:_MAX_NAME]),
            event.self_device_time_ms,
            event.count,
            percent(event.self_device_time_ms),
        ]
        for event in events
    ]
    rows.append(["Total", total_ms, "", percent(total_ms)])
    print(f"\n  == {category} category kernels == ")
    print(tabulate(rows, headers=["Kernel", f"Self {label} TIME (ms)", "Count", "Percent"]))


def _percent(part_ms: float, whole_ms: float) -> float:
    return 100 * part_ms / whole_ms if whole_ms else 0.0


def _busy_ms(events: list[Any], nruns: int, on_cpu: bool) -> tuple[float, str | None]:
    """The time of one run in which at least one of the events ran; a note where it is a bound."""
    ranges = [getattr(event, "time_range", None) for event in events]
    if any(span is None for span in ranges):
        total_us = sum(_self_time_us(event, on_cpu) for event in events)
        return total_us / 1e3 / nruns, "at most: averages don't tell what overlapped"
    start = np.array([round(span.start * 1e3) for span in ranges], dtype=np.int64)  # type: ignore[union-attr]
    end = np.array([round(span.end * 1e3) for span in ranges], dtype=np.int64)  # type: ignore[union-attr]
    return union(start, end)[0].measure() / 1e6 / nruns, None


def profile_calls(
    benchmark_name: str, call: Callable[[], Any], device: str, nruns: int = 20
) -> None:
    """Profile some calls and print the report; on CPU, shares are of the profiled runs' time."""
    import torch

    def run() -> float:
        start = time.perf_counter()
        for _ in range(nruns):
            call()
        if device != "cpu":
            getattr(torch, device).synchronize()
        return 1e3 * (time.perf_counter() - start) / nruns

    run()
    wall_time_ms = min(run() for _ in range(3))
    with torch.profiler.profile() as profile:
        profiled_ms = run()
    parse_profile_event_list(
        benchmark_name,
        profile.events() or [],
        # On a GPU, the profiler slows the host down and the kernels hardly at all.
        profiled_ms if device == "cpu" else wall_time_ms,
        nruns,
        device,
    )
