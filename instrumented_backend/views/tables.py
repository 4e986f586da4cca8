"""Each table as rows of plain values; the text, the CSV files and later views share them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from instrumented_backend.records import GraphRecord, KernelRecord, Report

Row = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """``rows(report)`` gives the rows; ``title`` says above them what they are.

    The text leaves out the columns ``only_in_files``, for which a terminal has no room.
    """

    name: str
    title: str
    rows: Callable[[Report], list[Row]]
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
            "times_met": record.count,
        }
        for record in report.breaks
    ]


def _recompiles(report: Report) -> list[Row]:
    return [
        {
            "compile_id": record.compile_id,
            "function": record.function,
            "where": _where(record.file, record.line),
            "reason": record.reason,
        }
        for record in report.recompiles
    ]


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


def _kernels(report: Report) -> list[Row]:
    return [kernel_row(kernel) for kernel in report.kernels]


def kernel_row(kernel: KernelRecord) -> Row:
    """All of a record, with what a terminal has room for first."""
    return {
        "kernel_name": kernel.kernel_name,
        "kernel_category": kernel.kernel_category,
        "graph": kernel.graph,
        "calls": kernel.calls,
        "num_load": kernel.num_load,
        "num_store": kernel.num_store,
        "moved_gb": None if kernel.total_bytes is None else kernel.total_bytes / 1e9,
        "bytes_source": kernel.bytes_source,
        "device_time_us": kernel.device_time_us,
        "device_time_total_us": kernel.device_time_total_us,
        "gb_per_s": kernel.gb_per_s,
        "peak_pct": kernel.peak_pct,
        **{
            name: _flat(value)
            for name, value in vars(kernel).items()
            if name not in ("total_bytes", "path")
        },
        "total_bytes": kernel.total_bytes,
        "graph_path": kernel.path,
    }


def _flat(value: Any) -> Any:
    """A list or a mapping as the text of one cell."""
    if isinstance(value, dict):
        return "; ".join(f"{key}: {_flat(item)}" for key, item in value.items()) or None
    if isinstance(value, list):
        return "; ".join(map(str, value)) or None
    return value


_KERNEL_COLUMNS = frozenset(
    {
        *("kernel_name", "kernel_category", "graph", "calls", "num_load", "num_store"),
        *("moved_gb", "bytes_source", "device_time_us", "device_time_total_us", "gb_per_s"),
        "peak_pct",
    }
)


def _counters(report: Report) -> list[Row]:
    rows: list[Row] = []
    for graph in report.graphs:
        metrics = {name: value for name, value in graph.inductor_metrics.items() if value}
        rows += _counter_rows(graph.graph, {"inductor_metrics": metrics, **graph.counters})
    outside = report.counters["outside_inductor_metrics"]
    moved = {name: value for name, value in outside.items() if value}
    rows += _counter_rows(None, {"inductor_metrics": moved})
    return rows + _counter_rows(None, report.counters["outside_graphs"])


def _counter_rows(graph: int | None, groups: dict[str, dict[str, int]]) -> list[Row]:
    return [
        {"graph": graph, "group": group, "counter": counter.partition("\n")[0], "value": value}
        for group, counters in groups.items()
        for counter, value in counters.items()
    ]


def _caches(report: Report) -> list[Row]:
    return [
        {
            "graph": graph.graph,
            "compile_id": graph.compile_id,
            "cache": graph.cache,
            "aot_autograd": graph.aot_autograd_cache,
            **{f"fx_graph_{kind}": count for kind, count in graph.fx_graph_cache.items()},
            "bypass_reason": graph.cache_reason,
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
            **record.phases_s,
            "total_s": record.total_s,
        }
        for record in report.compile["compilations"]
    ]


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
        Table("breaks", "What ended a graph (break) or left a function eager (skipped)", _breaks),
        Table("recompiles", "Functions compiled again, and the guard that failed", _recompiles),
        Table("missing", "Eager ops between the graphs", _missing),
        Table(
            "kernels",
            "Generated kernels and extern calls (moved: read and written by one launch)",
            _kernels,
            frozenset(kernel_row(KernelRecord("", ""))) - _KERNEL_COLUMNS,
        ),
        Table("counters", "Counters moved by each graph's compilation", _counters),
        Table("caches", "Where each graph's code came from", _caches),
        Table(
            "compile",
            "Seconds in each phase and in none inside it",
            _compile,
            frozenset({"direction", "outcome"}),
        ),
    )
}
