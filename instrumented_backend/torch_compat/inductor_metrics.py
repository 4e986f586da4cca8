"""Inductor's own counters and metric tables: ``torch._inductor.metrics`` and who writes to it."""

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

from instrumented_backend.torch_compat.hooks import Undo, replace_attribute, together

# Private names, by the versions of torch that have them.
NAMES = {
    "2.11 to 2.15": (
        "torch._inductor.codegen.halide.log_kernel_metadata",
        "torch._inductor.codegen.multi_kernel.MultiKernelCall._metrics_table_row",
        "torch._inductor.compile_fx_ext._OutOfProcessFxCompile.serialize_compile",
        "torch._inductor.config.enabled_metric_tables",
        "torch._inductor.metrics.CachedMetricsHelper",
        "torch._inductor.metrics.REGISTERED_METRIC_TABLES",
        "torch._inductor.metrics.get_metric_fields",
        "torch._inductor.metrics.log_kernel_metadata",
        "torch._inductor.scheduler._post_grad_graph_counter",
        "torch._inductor.utils.get_benchmark_name",
    ),
}


def module() -> Any:
    """The module whose functions ``instrumented_backend.metrics`` has under the same names."""
    return importlib.import_module("torch._inductor.metrics")


def fields() -> list[str]:
    """The fields of ``CachedMetricsHelper``: Inductor's counters that its caches keep."""
    from torch._inductor.metrics import get_metric_fields

    return get_metric_fields()


def values() -> dict[str, int]:
    from torch._inductor.metrics import CachedMetricsHelper

    return dict(CachedMetricsHelper().cached_metrics)


def registered_tables() -> tuple[str, ...]:
    """The tables' names; none while nobody has imported Inductor's metrics."""
    metrics = sys.modules.get("torch._inductor.metrics")
    return () if metrics is None else tuple(metrics.REGISTERED_METRIC_TABLES)


def tables_asked(options: Mapping[str, Any]) -> str:
    """Which tables a compilation with these options writes: the comma list in Inductor's config.

    That is the environment variable, unless the program changed it.
    """
    from torch._inductor import config

    return str(options.get("enabled_metric_tables", config.enabled_metric_tables))


def benchmark_name() -> str | None:
    """The model's name in PyTorch's benchmark scripts, ``--only NAME``: a row's first cell."""
    from torch._inductor.utils import get_benchmark_name

    return get_benchmark_name()


def patch_tables(
    replace: Callable[[Any], Any], log_kernel_metadata: Callable[[str, str, str], None]
) -> Undo:
    """Let ``replace(table)`` stand in for each registered table, and log kernels in our way.

    Inductor's own ``MetricTable.add_row`` refuses integers and lists, which its scheduler passes;
    its ``log_kernel_metadata`` looks for size hints in a form that is no longer generated. Both
    end the user's compilation with an AssertionError (2.11 to 2.15).
    """
    metrics = module()
    # The one module that holds the function by itself and not as ``metrics.log_kernel_metadata``.
    halide: Any = importlib.import_module("torch._inductor.codegen.halide")
    registered = metrics.REGISTERED_METRIC_TABLES
    tables = dict(registered)
    registered.update({name: replace(table) for name, table in tables.items()})
    return together(
        [
            lambda: registered.update(tables),
            replace_attribute(metrics, "log_kernel_metadata", log_kernel_metadata),
            replace_attribute(halide, "log_kernel_metadata", log_kernel_metadata),
        ]
    )


def patch_multi_kernel_row(row: Callable[[Any, list[float]], dict[str, Any]]) -> Undo:
    """Let ``row(call, timings)`` make the rows of ``persistent_red_perf``.

    Inductor's own method asks a kernel's function for its file; a kernel that a worker process
    compiled has no function (2.11 to 2.15).
    """
    from torch._inductor.codegen.multi_kernel import MultiKernelCall

    return replace_attribute(MultiKernelCall, "_metrics_table_row", row)


def patch_remote_compile() -> Undo:
    """Keep the tables off in processes to which Inductor hands a whole compilation.

    Such a process (``TORCHINDUCTOR_FX_COMPILE_MODE=SUBPROCESS``) has Inductor's own tables, whose
    AssertionError would come back as the user's. The cache key is made before (2.11 to 2.15).
    """
    from torch._inductor import config
    from torch._inductor.compile_fx_ext import _OutOfProcessFxCompile

    original = _OutOfProcessFxCompile.serialize_compile

    def serialize_compile(self: Any, *args: Any, **kwargs: Any) -> Any:
        with config.patch(enabled_metric_tables=""):
            return original(self, *args, **kwargs)

    return replace_attribute(_OutOfProcessFxCompile, "serialize_compile", serialize_compile)


def next_scheduler_graph_id() -> int:
    """Take the next ``graph_id`` of ``graph_stats``; nothing else draws from that counter."""
    from torch._inductor import scheduler

    return next(scheduler._post_grad_graph_counter)
