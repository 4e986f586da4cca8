"""Each table as rows of plain values; the text, the CSV files and later views share them."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, overload

from instrumented_backend.records import (
    GraphRecord,
    GuardRecord,
    KernelRecord,
    RecompileRecord,
    Report,
)
from instrumented_backend.views.meanings import meaning

Row = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """``rows(report)`` gives the rows; ``title`` says above them what they are.

    The text leaves out the columns ``only_in_files``, for which a terminal has no room.
    """

    name: str
    title: str
    rows: Callable[[Report], Sequence[Row]]
    only_in_files: frozenset[str] = frozenset()


def _where(file: str | None, line: int | None) -> str | None:
    return None if file is None else f"{file}:{line}"


def _kernel_count(graph: GraphRecord, *directions: str) -> int | None:
    counts = [code.kernels for code in graph.code if code.direction in directions]
    if any(kernels is None for kernels in counts):
        return None
    return sum(len(kernels or ()) for kernels in counts)


def _total(phases: dict[str, float | None]) -> float | None:
    seconds = list(phases.values())
    known = [value for value in seconds if value is not None]
    return sum(known) if seconds and len(known) == len(seconds) else None


def _summary(report: Report) -> list[Row]:
    return [{**report.summary, "torch": report.run["torch"], "device": report.run["device"]}]


def _graphs(report: Report) -> list[Row]:
    return [
        {
            "graph": graph.graph,
            "compile_id": graph.compile_id,
            "function": graph.function,
            "where": _where(graph.file, graph.line),
            "direction": graph.direction,
            "ops": graph.ops,
            "calls": graph.calls,
            "backward_calls": graph.backward_calls,
            "kernels": _kernel_count(graph, "forward", "backward"),
            "forward_kernels": _kernel_count(graph, "forward"),
            "backward_kernels": _kernel_count(graph, "backward"),
            "cache": graph.cache,
            "compile_s": _total(graph.compile_s),
            "name": graph.name,
            "ended_by": graph.ended_by,
        }
        for graph in report.graphs
    ]


def _breaks(report: Report) -> list[Row]:
    return [
        {
            "kind": record.kind,
            "reason": record.reason,
            "where": _where(record.file, record.line),
            "function": record.function,
            "source": record.source,
            "times_met": record.count,
            "eager_ops": record.eager_ops,
            "eager_time_us": record.eager_time_us,
            "graphs_before": _flat(record.graphs_before),
            "graphs_after": _flat(record.graphs_after),
            "ran_eagerly": _flat([function.function for function in record.skipped]),
            "called_from": _where(record.called_file, record.called_line),
            "hint": record.hint,
        }
        for record in report.breaks
    ]


def _recompiles(report: Report) -> list[Row]:
    """A row for each guard that failed."""
    return [
        {
            "compile_id": record.compile_id,
            "function": record.function,
            "where": _where(record.file, record.line),
            "recompiles": record.count,
            "compile_s": record.compile_s,
            "limit_hits": record.limit_hits,
            "guard": guard.subject if guard else None,
            "kind": guard.kind if guard else None,
            "values": " → ".join(guard.values) if guard else None,
            "failures": guard.count if guard else None,
            "used_at": _where(guard.file, guard.line) if guard else None,
            "cure": guard.cure if guard else None,
            "reason": (guard and guard.reason) or record.reason,
        }
        for record in report.recompiles
        for guard in _guards(record)
    ]


def _guards(record: RecompileRecord) -> list[GuardRecord | None]:
    """None stands for a function that has no guard to show."""
    return [*record.guards] or [None]


def _missing(report: Report) -> list[Row]:
    return [
        {
            "op": record.op,
            "where": _where(record.file, record.line),
            "function": record.function,
            "count": record.count,
            "time_us": record.time_us,
            "share_pct": record.share_pct,
        }
        for record in report.ops.missing
    ]


class _KernelRows(Sequence[Row]):
    """Made when they are read: a terminal shows few of ten thousand, and each has 50 columns."""

    def __init__(self, kernels: list[KernelRecord]) -> None:
        self._kernels = kernels

    def __len__(self) -> int:
        return len(self._kernels)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        if isinstance(index, slice):
            return [kernel_row(kernel) for kernel in self._kernels[index]]
        return kernel_row(self._kernels[index])


def _kernels(report: Report) -> Sequence[Row]:
    return _KernelRows(report.kernels)


_KERNEL_COLUMNS = (
    *("kernel_name", "kernel_category", "graph", "calls", "num_load", "num_store"),
    *("moved_gb", "bytes_source", "device_time_us", "device_time_total_us", "gb_per_s"),
    "peak_pct",
)
_NESTED = [
    field.name
    for field in dataclasses.fields(KernelRecord)
    if any(kind in str(field.type) for kind in ("list[", "dict["))
]


def kernel_row(kernel: KernelRecord) -> Row:
    """All of a record, with what a terminal has room for first."""
    row: Row = dict.fromkeys(_KERNEL_COLUMNS)
    row.update(vars(kernel))
    for name in _NESTED:
        row[name] = _flat(row[name]) if row[name] else None
    row["moved_gb"] = None if kernel.total_bytes is None else kernel.total_bytes / 1e9
    row["graph_path"] = row.pop("path")
    return row


def _flat(value: Any) -> Any:
    """A list or a mapping as the text of one cell."""
    if isinstance(value, dict):
        return "; ".join(f"{key}: {_flat(item)}" for key, item in value.items()) or None
    if isinstance(value, list):
        return "; ".join(map(str, value)) or None
    return value


def _counters(report: Report) -> list[Row]:
    """In all, of each graph, and of what ran outside them."""
    counters = report.counters
    outside = {"inductor_metrics": counters["outside_inductor_metrics"]}
    outside |= counters["outside_graphs"]
    everything: dict[str, dict[str, int]] = {}
    for groups in (
        {"inductor_metrics": counters["inductor_metrics"]} | counters["graphs"],
        outside,
    ):
        for group, members in groups.items():
            total = everything.setdefault(group, {})
            for name, value in members.items():
                total[name] = total.get(name, 0) + value
    rows = _counter_rows("all", everything)
    for graph in report.graphs:
        metrics = {"inductor_metrics": graph.inductor_metrics}
        rows += _counter_rows(graph.graph, {**metrics, **graph.counters})
    return rows + _counter_rows("none", outside)


def _counter_rows(graph: int | str | None, groups: dict[str, dict[str, int]]) -> list[Row]:
    return [
        {
            "graph": graph,
            "group": group,
            "counter": counter.partition("\n")[0],
            "value": value,
            "meaning": meaning(group, counter),
        }
        for group, counters in groups.items()
        for counter, value in counters.items()
        if value
    ]


def _caches(report: Report) -> list[Row]:
    return [
        {
            "graph": graph.graph,
            "compile_id": graph.compile_id,
            "cache": graph.cache,
            "aot_autograd": graph.aot_autograd_cache,
            **{f"fx_graph_{kind}": count for kind, count in graph.fx_graph_cache.items()},
            "saved_s": graph.saved_s,
            "reason": graph.cache_reason,
        }
        for graph in report.graphs
    ]


def _compile(report: Report) -> list[Row]:
    return [
        {
            "compile_id": record.compile_id,
            "pass": record.direction if record.outcome == "compiled" else record.outcome,
            "direction": record.direction,
            "outcome": record.outcome,
            "function": record.function,
            "graphs": _flat(record.graphs),
            "total_s": record.total_s,
            "longest_phases": _longest(record.phases_s),
            **record.phases_s,
        }
        for record in report.compile["compilations"]
    ]


def _longest(phases: dict[str, float | None]) -> str:
    """``codegen 1.21, load 0.40``: what took most of it."""
    known = sorted(((took, name) for name, took in phases.items() if took), reverse=True)
    shown = [(took, name) for took, name in known if took >= 0.1 * known[0][0]][:3]
    return ", ".join(
        f"{name.removesuffix('_s').replace('_', ' ')} {took:.2f}" for took, name in shown
    )


_PHASES = frozenset(
    f"{phase}_s"
    for phase in (
        *("dynamo", "aot_autograd", "passes", "lowering", "scheduling", "codegen"),
        *("kernel_compile", "load", "autotune", "cudagraphs", "inductor"),
    )
)


TABLES = {
    table.name: table
    for table in (
        Table("summary", "The whole run", _summary),
        Table(
            "graphs",
            "Graphs that Dynamo captured (kernels: forward + backward)",
            _graphs,
            frozenset({"graph", "direction", "forward_kernels", "backward_kernels", "ended_by"}),
        ),
        Table("breaks", "What broke graphs or left functions eager, the costliest first", _breaks),
        Table("recompiles", "Functions compiled again, and the guards that failed", _recompiles),
        Table("missing", "Eager ops between the graphs", _missing),
        Table(
            "kernels",
            "Generated kernels and extern calls (moved: read and written by one launch)",
            _kernels,
            frozenset(kernel_row(KernelRecord("", ""))).difference(_KERNEL_COLUMNS),
        ),
        Table(
            "counters",
            "Counters moved in all, by each graph's compilation, by none of them",
            _counters,
            frozenset({"meaning"}),
        ),
        Table("caches", "Where each graph's code came from", _caches),
        Table(
            "compile",
            "Compilations, and the phases that took longest (s)",
            _compile,
            frozenset({"direction", "outcome"}) | _PHASES,
        ),
    )
}
