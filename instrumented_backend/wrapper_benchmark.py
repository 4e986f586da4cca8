"""``torch._inductor.wrapper_benchmark`` for any generated module, on CPU and GPU.

The names and the printed forms are PyTorch's. Where its functions give up, these don't: on modules
that were compiled without ``benchmark_kernel``, on kernels of C++, on kernels that no longer import
their decorator by name, on autotuners that still have several launchers, on profiles of a CPU.
"""

import argparse
import contextlib
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from instrumented_backend.kernels.triton_syntax import CATEGORIES
from instrumented_backend.profiling.intervals import union

__all__ = [
    "ProfileEvent",
    "benchmark_all_kernels",
    "compiled_module_main",
    "get_kernel_category",
    "get_kernel_category_by_source_code",
    "get_triton_kernel",
    "parse_profile_event_list",
]

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
_DECORATOR = re.compile(rf"^@(?:triton_heuristics\.)?({'|'.join(CATEGORIES)})\(", re.MULTILINE)
_MAX_NAME = 120


class BenchmarkCallableType(Protocol):
    """A generated module's ``benchmark_compiled_module``: seconds of one call."""

    def __call__(self, times: int, repeat: int) -> float: ...


# --- Kernels ------------------------------------------------------------------------------------


def get_kernel_category_by_source_code(src_code: str) -> str:
    """``pointwise``, ``reduction``, ... by the decorator of the source's Triton kernels.

    "unknown" where there is none, or several kernels of different categories.
    """
    found = set(_DECORATOR.findall(src_code))
    return found.pop() if len(found) == 1 else "unknown"


def get_kernel_category(kernel_mod: ModuleType) -> str:
    """The category of a module's Triton kernel; "unknown" if it has several of different ones."""
    source = _source(kernel_mod)
    if source is not None:
        return get_kernel_category_by_source_code(source)
    # No file: perhaps the decorator was imported by its name.
    found = [name for name in CATEGORIES if name in vars(kernel_mod)]
    return found[0] if len(found) == 1 else "unknown"


def _source(module: ModuleType) -> str | None:
    path = getattr(module, "__file__", None)
    try:
        return None if path is None else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def get_triton_kernel(mod: ModuleType) -> Any:
    """The Triton kernel (``CachingAutotuner``) of a module.

    Of several, it is the one that the module's own ``call`` launches. Raises ValueError where
    there is none, or still more than one.
    """
    kernels = _triton_kernels(mod)
    if len(kernels) > 1:
        function = getattr(mod, "call", None)
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        called = code.co_names if code is not None else ()
        kernels = {name: kernel for name, kernel in kernels.items() if name in called} or kernels
    if len(kernels) != 1:
        names = ", ".join(kernels) or "none"
        raise ValueError(f"{mod.__name__}: has to have one Triton kernel, has {names}")
    return next(iter(kernels.values()))


def _triton_kernels(module: ModuleType) -> dict[str, Any]:
    """By name, each once: a module may have two names for one kernel."""
    from instrumented_backend.torch_compat import inductor

    seen: dict[int, tuple[str, Any]] = {}
    for name, value in vars(module).items():
        if inductor.is_triton_kernel(value):
            seen.setdefault(id(value), (name, value))
    return dict(seen.values())


def benchmark_all_kernels(
    benchmark_name: str, benchmark_all_configs: dict[Any, Any] | bool | None
) -> None:
    """Time and print every kernel of the generated modules in this process, C++ ones too.

    ``benchmark_all_configs``: each configuration of a Triton kernel that is still to be chosen.
    """
    found = 0
    for record in _bench_modules(bool(benchmark_all_configs)):
        found += 1
        print(_line(benchmark_name, record))
    if not found:
        print("No generated kernel found in this process")


def _bench_modules(all_configs: bool) -> Iterator[Any]:
    from instrumented_backend.kernels.parse import is_graph
    from instrumented_backend.torch_compat import inductor

    modules = [*inductor.generated_modules(), sys.modules["__main__"]]
    texts = [(module, _source(module) or "") for module in modules]
    graphs = [(module, text) for module, text in texts if is_graph(text)]
    in_graphs = "\n".join(text for _, text in graphs)
    for module, text in graphs:
        yield from _bench_graph(module, text, all_configs)
    for module, text in texts:
        # A kernel of a graph is in the graph's module word for word, and has been timed.
        if not is_graph(text) and "@triton.jit" in text and text.strip() not in in_graphs:
            yield from _bench_kernel(module, text, all_configs)


def _bench_graph(module: ModuleType, text: str, all_configs: bool) -> Iterator[Any]:
    import torch

    from instrumented_backend.bench.collect import device_of
    from instrumented_backend.bench.graph import graph_arguments
    from instrumented_backend.bench.launches import Walk
    from instrumented_backend.kernels.parse import GraphSource

    source = GraphSource(text)
    walk = Walk(source, device_of(text), _ignore, _ignore, all_configs)
    before = dict(vars(module))  # making arguments sets the module's constants anew
    try:
        with torch.no_grad():
            walk.run(module, graph_arguments(module, source, text))
    finally:
        vars(module).update(before)
    for launch in walk.launches.values():
        yield from launch.records


def _ignore(launch: Any) -> None:
    """Nobody waits for a row."""


def _bench_kernel(module: ModuleType, text: str, all_configs: bool) -> Iterator[Any]:
    from instrumented_backend.bench.collect import device_of
    from instrumented_backend.bench.kernel_module import bench_kernel_module

    yield from bench_kernel_module(module, text, device_of(text), all_configs)


def _line(benchmark_name: str, record: Any) -> str:
    kernel = record.kernel
    line = f"{benchmark_name:20} {kernel.kernel_category[:3].upper()} {kernel.kernel_name}"
    if record.timing is None:
        return f"{line}  not timed: {record.error}"
    line += f"  {record.timing.ms:.4f}ms"
    if kernel.total_bytes is not None:
        line += f"  {kernel.total_bytes / 1e9:.4g} GB  {record.gb_per_s:.2f}GB/s"
    if record.n_regs is not None:
        line += (
            f"  {record.n_regs} regs  {record.n_spills} spills  {record.shared_bytes} shared mem"
        )
    if record.config is not None:
        line += f"  @ {record.config}"
    return line


# --- Profiles -----------------------------------------------------------------------------------


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
    # An annotation's span on the device is no work of its own.
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
            event.key[:_MAX_NAME],
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


# --- A generated module run as a program --------------------------------------------------------


def compiled_module_main(
    benchmark_name: str, benchmark_compiled_module_fn: BenchmarkCallableType
) -> None:
    """What a generated module's ``__main__`` calls: ``-k`` times its kernels, ``-p`` profiles it.

    Without an option the compiled call is timed. ``-c`` is ``-k`` with each configuration.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "-k", "--benchmark-kernels", action="store_true", help="time each kernel alone"
    )
    parser.add_argument(
        "-c", "--benchmark-all-configs", action="store_true", help="time each configuration, too"
    )
    parser.add_argument("-p", "--profile", action="store_true", help="profile the compiled module")
    options = parser.parse_args()
    import torch

    def main() -> None:
        if options.benchmark_kernels or options.benchmark_all_configs:
            benchmark_all_kernels(benchmark_name, options.benchmark_all_configs)
            return
        times = repeat = 10
        wall_time_ms = 1e3 * benchmark_compiled_module_fn(times=times, repeat=repeat)
        if options.profile:
            _profile_module(benchmark_name, benchmark_compiled_module_fn, wall_time_ms)
        else:
            print(f"{wall_time_ms:.3f} ms")

    torch.compiler.disable(main)()


def _profile_module(
    benchmark_name: str, function: BenchmarkCallableType, wall_time_ms: float
) -> None:
    import torch

    times = repeat = 5
    with _spans_of(function), torch.profiler.profile() as profile:
        profiled_ms = 1e3 * function(times=times, repeat=repeat)
    events = profile.events() or []
    device = getattr(profile, "use_device", None) or "cpu"
    parse_profile_event_list(
        benchmark_name,
        events,
        profiled_ms if device == "cpu" else wall_time_ms,
        times * repeat,
        device,
    )


def _spans_of(function: BenchmarkCallableType) -> AbstractContextManager[None]:
    """Spans for the C++ kernels of the module that the function is from."""
    from instrumented_backend.bench.graph import cpp_spans
    from instrumented_backend.kernels.parse import GraphSource, is_graph

    module = sys.modules.get(getattr(function, "__module__", None) or "")
    text = "" if module is None else _source(module) or ""
    if module is None or not is_graph(text):
        return contextlib.nullcontext()
    return cpp_spans(module, GraphSource(text))
