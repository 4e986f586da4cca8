"""``torch._inductor.wrapper_benchmark`` for any generated module, on CPU and GPU.

The names and the printed forms are PyTorch's. Where its functions give up, these don't: on modules
that were compiled without ``benchmark_kernel``, on kernels of C++, on kernels that no longer import
their decorator by name, on autotuners that still have several launchers, on profiles of a CPU.
"""

import argparse
import contextlib
import re
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from instrumented_backend.bench.autotuner import get_triton_kernel
from instrumented_backend.bench.profile_report import ProfileEvent, parse_profile_event_list
from instrumented_backend.kernels.triton_syntax import CATEGORIES
from instrumented_backend.records.escapes import shown

__all__ = [
    "ProfileEvent",
    "benchmark_all_kernels",
    "compiled_module_main",
    "get_kernel_category",
    "get_kernel_category_by_source_code",
    "get_triton_kernel",
    "parse_profile_event_list",
]

_DECORATOR = re.compile(rf"^@(?:triton_heuristics\.)?({'|'.join(CATEGORIES)})\(", re.MULTILINE)


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


def benchmark_all_kernels(
    benchmark_name: str, benchmark_all_configs: dict[Any, Any] | bool | None
) -> None:
    """Time and print every kernel of the generated modules in this process, C++ ones too.

    ``benchmark_all_configs``: each configuration of a Triton kernel that is still to be chosen.
    """
    found = 0
    for record in _bench_modules(bool(benchmark_all_configs)):
        found += 1
        print(shown(_line(benchmark_name, record)))
    if not found:
        print("No generated kernel found in this process")


def _bench_modules(all_configs: bool) -> Iterator[Any]:
    from instrumented_backend.kernels.graph_module import is_graph
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

    from instrumented_backend.bench.graph import graph_arguments
    from instrumented_backend.bench.targets import device_of
    from instrumented_backend.bench.walk import Walk
    from instrumented_backend.kernels.parse import GraphSource

    source = GraphSource(text)
    walk = Walk(source, device_of(text), _ignore, _ignore, all_configs)
    before = dict(vars(module))  # making arguments sets the module's constants
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
    from instrumented_backend.bench.kernel_module import bench_kernel_module
    from instrumented_backend.bench.targets import device_of

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
    from instrumented_backend.kernels.graph_module import is_graph
    from instrumented_backend.kernels.parse import GraphSource

    module = sys.modules.get(getattr(function, "__module__", None) or "")
    text = "" if module is None else _source(module) or ""
    if module is None or not is_graph(text):
        return contextlib.nullcontext()
    return cpp_spans(module, GraphSource(text))
