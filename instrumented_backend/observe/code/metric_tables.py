"""Keeps Inductor's metric tables working while it compiles, and fills them on warm caches."""

import functools
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from instrumented_backend.kernels.complete import add_sidecar
from instrumented_backend.kernels.parse import parse_module
from instrumented_backend.observe.failures import Failures
from instrumented_backend.observe.observer import Observer
from instrumented_backend.records import notes, side_files
from instrumented_backend.torch_compat import inductor, inductor_metrics

if TYPE_CHECKING:
    from instrumented_backend.dropins.metrics import MetricTable

MAX_KEPT_ROWS = 100  # of graph_stats for one graph: its own, and one for each graph inside it
_COUNTS = ("num_nodes_before_fusion", "num_nodes_after_fusion")


@dataclass
class _Compilation:
    """What Inductor logged while it compiled one graph on this thread."""

    graph_stats: list[dict[str, Any]] = field(default_factory=list)
    kernels: dict[str, tuple[str, str]] = field(default_factory=dict)  # name → path and code


class _InductorTable:
    """Stands in Inductor's registry for one of our tables and lets no failure through."""

    def __init__(
        self,
        table: "MetricTable",
        failures: Failures,
        added: Callable[[str, dict[str, Any]], None],
    ) -> None:
        self._table = table
        self._failures = failures
        self._added = added

    def add_row(self, row_fn: Callable[[], dict[str, Any]]) -> None:
        with self._failures.guard(f"a row of metric table {self._table.table_name}"):
            self._table.add_row(functools.partial(self._row, row_fn))

    def _row(self, row_fn: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        row = row_fn()
        self._added(self._table.table_name, row)
        return row

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)


class MetricTables(Observer):
    """Installed with the first graph for which a table is on; idle without one."""

    def __init__(self, failures: Failures) -> None:
        self._failures = failures
        self._installed = False
        self._installing = threading.Lock()
        self._thread = threading.local()

    def after_fork(self) -> None:
        """In the child: the lock may have been held by a thread that exists no more."""
        self._installing = threading.Lock()

    def install(self, options: Mapping[str, Any]) -> None:
        """Put our tables into Inductor's registry if a compilation with ``options`` uses any."""
        if self._installed or not inductor_metrics.tables_asked(options):
            return
        with self._installing:  # a second thread waits, for it would meet Inductor's own tables
            if not self._installed:
                self._patch()
                self._installed = True

    def _patch(self) -> None:
        from instrumented_backend.dropins import metrics

        inductor_metrics.patch_tables(
            lambda table: _InductorTable(
                metrics.get_metric_table(table.table_name), self._failures, self._row_added
            ),
            self._kernel_logged,
        )
        inductor_metrics.patch_multi_kernel_row(_multi_kernel_row)
        inductor_metrics.patch_remote_compile()

    # --- While Inductor compiles ----------------------------------------------------------------

    def compilation_starts(self) -> None:
        self._compilations().append(_Compilation())

    def compilation_ends(self) -> None:
        self._compilations().pop()

    def _compilations(self) -> list[_Compilation]:
        """Those under way on this thread, innermost last."""
        try:
            compilations: list[_Compilation] = self._thread.compilations
        except AttributeError:
            compilations = self._thread.compilations = []
        return compilations

    def _row_added(self, table: str, row: dict[str, Any]) -> None:
        compilations = self._compilations()
        if table == "graph_stats" and compilations:
            compilations[-1].graph_stats.append(row)

    def _kernel_logged(self, name: str, path: str, code: str) -> None:
        """In place of Inductor's ``log_kernel_metadata``.

        A graph's kernels are logged when its code is ready, as on a warm cache.
        """
        compilations = self._compilations()
        if compilations:
            compilations[-1].kernels[name] = path, code
        else:
            self._log_kernel(name, path, code)

    def _log_kernel(self, name: str, path: str, code: str) -> None:
        from instrumented_backend.dropins import metrics

        with self._failures.guard(f"metadata of kernel {name}"):
            metrics.log_kernel_metadata(name, path, code)

    # --- When a graph's code is ready, compiled or from a cache -----------------------------------

    def code_loaded(self, compiled_graph: Any) -> None:
        if not self._installed:
            return
        from instrumented_backend.dropins import metrics

        compilations = self._compilations()
        compilation = compilations[-1] if compilations else _Compilation()
        if metrics.is_metric_table_enabled("kernel_metadata"):
            self._log_kernels(compiled_graph, compilation.kernels)
        if metrics.is_metric_table_enabled("graph_stats"):
            path = _side_file(compiled_graph)
            if compilation.graph_stats:
                _keep_graph_stats(path, compilation.graph_stats)
            else:
                self._graph_stats_again(path)

    def _log_kernels(self, compiled_graph: Any, logged: dict[str, tuple[str, str]]) -> None:
        from instrumented_backend.dropins import metrics

        path = inductor.code_path(compiled_graph)
        rest = dict(logged)
        with self._failures.guard("kernel_metadata of a graph"):
            records = parse_module(compiled_graph.source_code, path)
            add_sidecar(records, path)
            for record in records:
                if record.language == "extern" or record.kernel_category == "multi-kernel":
                    continue
                its_path, _ = rest.pop(record.kernel_name, (path, ""))
                record.kernel_path = record.kernel_path or its_path
                row = metrics.metadata_row(record)
                metrics.get_metric_table("kernel_metadata").add_row(functools.partial(dict, row))
        # What a wrapper that is not Python (cpp_wrapper) holds in a form of its own.
        for name, (path, code) in rest.items():
            self._log_kernel(name, path, code)

    def _graph_stats_again(self, path: Path | None) -> None:
        from instrumented_backend.dropins import metrics

        kept = None if path is None else side_files.load(path)
        if not isinstance(kept, list):
            self._failures.note(
                notes.GRAPH_STATS_UNKNOWN,
                "graph_stats: a graph was compiled without this backend, in another process, or"
                " what was kept of it is damaged: its numbers of nodes are unknown",
            )
            kept = [[None, None]]
        for counts in kept:
            row = {
                "graph_id": inductor_metrics.next_scheduler_graph_id(),
                **dict(zip(_COUNTS, counts, strict=True)),
            }
            metrics.get_metric_table("graph_stats").add_row(functools.partial(dict, row))


def _side_file(compiled_graph: Any) -> Path | None:
    """By the graph's key in Inductor's cache, and its code: one key may stand for several codes."""
    key = inductor.fx_graph_key(compiled_graph)
    if key is None:
        return None
    return side_files.side_file(inductor.code_path(compiled_graph), "graph_stats", key)


def _keep_graph_stats(path: Path | None, rows: list[dict[str, Any]]) -> None:
    if path is not None:
        counts = [[row[name] for name in _COUNTS] for row in rows[:MAX_KEPT_ROWS]]
        side_files.save(path, counts)


def _multi_kernel_row(call: Any, timings: list[float]) -> dict[str, Any]:
    """A row of ``persistent_red_perf``: kernels that compute the same, each with its ms.

    The table has room for four.
    """
    kernels = call.kernels
    row = {
        "size_hints": kernels[0].size_hints,
        "reduction_hint": kernels[0].inductor_meta.get("reduction_hint"),
    }
    for number in range(4):
        there = number < len(kernels)
        row[f"kernel{number}_path"] = kernels[number].filename if there else None
        row[f"kernel{number}_latency"] = timings[number] if there else None
    return row
