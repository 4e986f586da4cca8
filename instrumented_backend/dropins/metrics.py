"""``torch._inductor.metrics`` with tables that work: write ``metric_table_<name>.csv``.

Code written for Inductor's module works with this one in its place. The counters are Inductor's
own, read and set through this module (``metrics.generated_kernel_count``); so are
`CachedMetricsHelper`, `CachedMetricsDeltas`, `get_metric_fields` and `reset`. The tables are ours:
rows may hold any value, files go to ``INSTRUMENTED_DIR`` (without it, to the working folder of the
moment), and lines of different threads and processes don't mix.
"""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from instrumented_backend import settings
from instrumented_backend.kernels.parse import parse_module
from instrumented_backend.records import KernelRecord, csv_rows
from instrumented_backend.torch_compat import inductor_metrics

__all__ = [
    "REGISTERED_METRIC_TABLES",
    "CachedMetricsDeltas",
    "CachedMetricsHelper",
    "MetricTable",
    "enabled_metric_tables",
    "get_metric_fields",
    "get_metric_table",
    "is_metric_table_enabled",
    "log_kernel_autotune_result",
    "log_kernel_metadata",
    "purge_old_log_files",
    "reset",
]

_inductor = inductor_metrics.module()

CachedMetricsDeltas = _inductor.CachedMetricsDeltas
CachedMetricsHelper = _inductor.CachedMetricsHelper
enabled_metric_tables = _inductor.enabled_metric_tables
get_metric_fields = _inductor.get_metric_fields
is_metric_table_enabled = _inductor.is_metric_table_enabled
reset = _inductor.reset


@dataclass
class MetricTable:
    """One CSV file: its name, its columns after ``model_name``, and how many rows we added."""

    table_name: str
    column_names: list[str]
    num_rows_added: int = 0

    def add_row(self, row_fn: Callable[[], dict[str, Any]]) -> None:
        """Append the row that ``row_fn`` returns; it is not called where the table is off.

        Floats are written as ``%.6f``, None as an empty cell. Raises AssertionError where the
        row's keys are not the table's columns, OSError where the file cannot be written.
        """
        if not is_metric_table_enabled(self.table_name):
            return
        row = row_fn()
        if row.keys() != set(self.column_names):
            raise AssertionError(
                f"a row of metric table {self.table_name} has the keys {', '.join(row)};"
                f" its columns are {', '.join(self.column_names)}"
            )
        cells = [inductor_metrics.benchmark_name(), *(row[name] for name in self.column_names)]
        csv_rows.append_row(self.output_filename(), self._header(), cells)
        self.num_rows_added += 1

    def output_filename(self) -> str:
        """Absolute with a folder in ``INSTRUMENTED_DIR``, else relative to the working folder."""
        name = f"metric_table_{self.table_name}.csv"
        folder = settings.of_process().dir
        # Rows are added to a file as they come, which what has a URL does not allow.
        return os.path.join(folder, name) if isinstance(folder, Path) else name

    def write_header(self) -> None:
        """Start the file afresh, with its header alone."""
        csv_rows.start(self.output_filename(), self._header())

    def _header(self) -> list[str]:
        return ["model_name", *self.column_names]

    @staticmethod
    def register_table(name: str, column_names: list[str]) -> None:
        """Make a table of the program's own known, here and to Inductor."""
        table = MetricTable(name, column_names)
        REGISTERED_METRIC_TABLES[name] = _inductor.REGISTERED_METRIC_TABLES[name] = table


REGISTERED_METRIC_TABLES: dict[str, MetricTable] = {
    name: MetricTable(name, list(table.column_names))
    for name, table in _inductor.REGISTERED_METRIC_TABLES.items()
}


def get_metric_table(name: str) -> MetricTable:
    """The table of that name; raises AssertionError where none is registered."""
    if name not in REGISTERED_METRIC_TABLES:
        # Perhaps registered with Inductor since this module was imported.
        theirs = _inductor.get_metric_table(name)
        REGISTERED_METRIC_TABLES[name] = MetricTable(name, list(theirs.column_names))
    return REGISTERED_METRIC_TABLES[name]


def purge_old_log_files() -> None:
    """Leave only the header in the file of each enabled table.

    For the parent process of a benchmark, before it starts those that run the models.
    """
    for name in enabled_metric_tables():
        get_metric_table(name).write_header()


def log_kernel_metadata(kernel_name: str, kernel_path: str, kernel_module_code: str) -> None:
    """Add a row about a kernel, from its own module's code, to ``kernel_metadata``, if that is on.

    The code is read, not run. Raises `ParseError` where it is no kernel's.
    """

    def row() -> dict[str, Any]:
        records = parse_module(kernel_module_code, kernel_path)
        named = [record for record in records if record.kernel_name == kernel_name]
        record = (named or records)[0]
        record.kernel_name, record.kernel_path = kernel_name, kernel_path
        return metadata_row(record)

    get_metric_table("kernel_metadata").add_row(row)


def metadata_row(record: KernelRecord) -> dict[str, Any]:
    """The record's fields that ``kernel_metadata`` has as columns.

    Inductor writes ``kernel_args_num_gb`` into the code only for benchmarks; where its figure is
    known without, it is given all the same.
    """
    columns = get_metric_table("kernel_metadata").column_names
    row = {name: getattr(record, name, None) for name in columns}
    if record.bytes_source == "inductor" and record.total_bytes is not None:
        row["kernel_args_num_gb"] = record.total_bytes / 1e9
    return row


def log_kernel_autotune_result(
    kernel_path: str, kernel_name: str, config: Any, latency: float
) -> None:
    """Add a row about one Triton configuration to ``kernel_autotune``; ``latency`` in ms."""
    get_metric_table("kernel_autotune").add_row(
        lambda: {
            "kernel_path": kernel_path,
            "kernel_name": kernel_name,
            "triton_config": str(config),
            "latency_ms": latency,
        }
    )


class _ModuleWithCounters(ModuleType):
    """Passes Inductor's counters through, for what a module-level ``__getattr__`` can't do: set."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(_inductor, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.__dict__ and hasattr(_inductor, name):
            setattr(_inductor, name, value)
        else:
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _ModuleWithCounters
