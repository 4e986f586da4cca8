"""Each table as rows of plain values; the text, the CSV files and later views share them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import overload

from instrumented_backend.records import (
    GuardRecord,
    KernelRecord,
    RecompileRecord,
    Report,
    SummarySection,
)
from instrumented_backend.records.compilation import CounterGroups, Phases, longest_first
from instrumented_backend.records.fields import field_values
from instrumented_backend.views.meanings import meaning
from instrumented_backend.views.names import Names
from instrumented_backend.views.next_steps import next_steps
from instrumented_backend.views.output import Cell, Place, TableRow
from instrumented_backend.views.words import phase


@dataclass(frozen=True)
class Table:
    """``rows(report)`` gives the rows; ``title`` says above them what they are.

    The text leaves out the columns ``only_in_files``, for which a terminal has no room; and where
    it is narrow, those in ``least``, one after the other. The columns ``with_units`` are times,
    each of whose cells has the unit that suits it.
    """

    name: str
    title: str
    rows: Callable[[Report], Sequence[TableRow]]
    only_in_files: frozenset[str] = frozenset()
    least: tuple[str, ...] = ()
    with_units: frozenset[str] = frozenset()


def _summary(report: Report) -> list[TableRow]:
    return [{**_cells(report.summary), "torch": report.run.torch, "device": report.run.device}]


def _ledger(report: Report) -> list[TableRow]:
    """The main thread's rows, then those of the others, each with the largest first."""
    rows = sorted(report.ledger.rows, key=lambda r: (r.threads != "main", -(r.seconds or 0.0)))
    return [
        {
            "threads": row.threads,
            "row": row.row,
            "seconds": row.seconds,
            "share_pct": report.ledger.share_pct(row) if row.threads == "main" else None,
            "spread_s": row.spread_s,
            "status": row.status,
        }
        for row in rows
    ]


def _gpu(report: Report) -> list[TableRow]:
    rows = (dict(vars(gpu)) for gpu in report.gpu.gpus)
    return [{"gpu": row.pop("device"), **row} for row in rows]


def _next(report: Report) -> list[TableRow]:
    return [
        {
            "at_most_s": step.bound_s,
            "of_run_pct": step.bound_pct,
            "seen_s": step.seen_s,
            "known": step.known,
            "what": step.text,
            "where": Place.of(step.file, step.line),
            "code": step.code,
            "made_of": _flat({name: f"{took:.3f} s" for name, took in step.parts_s.items()}),
        }
        for step in next_steps(report)
    ]


def _compiled(report: Report) -> list[TableRow]:
    return [
        {
            "compiled": record.compiled,
            "call": record.call,
            "where": Place.of(record.file, record.line),
            "name": record.name,
            "outcome": record.outcome,
            "calls": record.calls,
            "eager_calls": record.eager_calls,
            "graphs": _flat(record.graphs),
            "shared_graphs": _flat(record.shared_graphs),
            "graph_calls": record.graph_calls,
            "captured_ops": record.captured_ops,
            "ops_pct": record.pct_ops,
            "time_pct": record.pct_time,
            "target": record.target,
            "limit_hits": record.limit_hits,
            "first_eager_call": record.first_eager_call,
            "reason": record.reason,
            "reason_at": Place.of(record.reason_file, record.reason_line),
        }
        for record in report.compiled
    ]


def _graphs(report: Report) -> list[TableRow]:
    names = Names(report)
    return [
        {
            "graph": graph.graph,
            "compile_id": graph.compile_id,
            "function": names.function(graph.compiled, graph.function),
            "where": Place.of(*names.place(graph.compiled, graph.function, graph.file, graph.line)),
            "direction": graph.direction,
            "ops": graph.ops,
            "calls": graph.calls,
            "backward_calls": graph.backward_calls,
            "time_us": graph.time_us,
            "gpu_time_us": graph.gpu_time_us,
            "mean_call_us": graph.mean_call_us,
            "longest_call_us": graph.longest_call_us,
            "mean_backward_us": graph.mean_backward_us,
            "longest_backward_us": graph.longest_backward_us,
            "kernels": graph.kernel_count("forward", "backward"),
            "forward_kernels": graph.kernel_count("forward"),
            "backward_kernels": graph.kernel_count("backward"),
            "cache": graph.cache,
            "compile_s": graph.total_compile_s,
            "name": graph.name,
            "ended_by": graph.ended_by,
        }
        for graph in report.graphs
    ]


def _breaks(report: Report) -> list[TableRow]:
    return [
        {
            "kind": record.kind,
            "reason": record.reason,
            "where": Place.of(record.file, record.line),
            "function": record.function,
            "source": record.source,
            "times_met": record.count,
            "eager_ops": record.eager_ops,
            "eager_time_us": record.eager_time_us,
            "graphs_before": _flat(record.graphs_before),
            "graphs_after": _flat(record.graphs_after),
            "ran_eagerly": _flat([function.function for function in record.skipped]),
            "called_from": Place.of(record.called_file, record.called_line),
            "hint": record.hint,
        }
        for record in report.breaks
    ]


def _recompiles(report: Report) -> list[TableRow]:
    """A row for each guard that failed."""
    names = Names(report)
    return [
        {
            "compile_id": record.compile_id,
            "function": names.function(record.compiled, record.function),
            "where": Place.of(
                *names.place(record.compiled, record.function, record.file, record.line)
            ),
            "recompiles": record.count,
            "compile_s": record.compile_s,
            "limit_hits": record.limit_hits,
            "guard": guard.subject if guard else None,
            "kind": guard.kind if guard else None,
            "values": " → ".join(guard.values) if guard else None,
            "failures": guard.count if guard else None,
            "decided": guard.decided if guard else None,
            "decided_s": guard.decided_s if guard else None,
            "used_at": Place.of(guard.file, guard.line) if guard else None,
            "cure": guard.cure if guard else None,
            "reason": (guard and guard.reason) or record.reason,
        }
        for record in report.recompiles
        for guard in _guards(record)
    ]


def _guards(record: RecompileRecord) -> list[GuardRecord | None]:
    """None stands for a function that has no guard to show."""
    return [*record.guards] or [None]


def _missing(report: Report) -> list[TableRow]:
    return [
        {
            "op": record.op,
            "where": Place.of(record.file, record.line),
            "function": record.function,
            "count": record.count,
            "count_spread": record.count_spread,
            "time_us": record.time_us,
            "gpu_time_us": record.gpu_time_us,
            "op_time_pct": report.ops.share_of_op_time(record),
            "share_pct": record.share_pct,
        }
        for record in report.ops.missing
    ]


def _lines(report: Report) -> list[TableRow]:
    return [
        {
            "where": Place.of(record.file, record.line),
            "function": record.function,
            "captured_ops": record.captured_ops,
            "forward_ops": record.forward_ops,
            "backward_ops": record.backward_ops,
            "eager_ops": record.eager_ops,
            "eager_ops_spread": record.eager_ops_spread,
            "eager_time_us": record.eager_time_us,
            "eager_gpu_us": record.eager_gpu_us,
            "breaks": len(record.breaks) or None,
            "recompiles": record.recompiles or None,
            "recompile_s": record.recompile_s or None,
            "kernels": len(record.kernels) or None,
            "device_time_us": record.device_time_us,
            "graphs": _flat(record.graphs),
            "called": _flat(record.called),
        }
        for record in report.lines
    ]


class _KernelRows(Sequence[TableRow]):
    """Made when they are read: a terminal shows few of ten thousand, and each has 50 columns."""

    def __init__(self, kernels: list[KernelRecord]) -> None:
        self._kernels = kernels

    def __len__(self) -> int:
        return len(self._kernels)

    @overload
    def __getitem__(self, index: int) -> TableRow: ...
    @overload
    def __getitem__(self, index: slice) -> list[TableRow]: ...
    def __getitem__(self, index: int | slice) -> TableRow | list[TableRow]:
        if isinstance(index, slice):
            return [kernel_row(kernel) for kernel in self._kernels[index]]
        return kernel_row(self._kernels[index])


def _kernels(report: Report) -> Sequence[TableRow]:
    return _KernelRows(report.kernels)


_KERNEL_COLUMNS = (
    *("kernel_name", "kernel_category", "graph", "calls", "num_load", "num_store"),
    *("moved_gb", "bytes_source", "device_time_us", "device_time_total_us", "gb_per_s"),
    "peak_pct",
)


def kernel_row(kernel: KernelRecord) -> TableRow:
    """All fields of a record; those that a terminal has room for come first."""
    row = {**dict.fromkeys(_KERNEL_COLUMNS), **_cells(kernel)}
    row["moved_gb"] = kernel.moved_gb
    row["graph_path"] = row.pop("path")
    del row["note_codes"]  # for code that reads records; a table has the texts
    return row


_PLAIN = frozenset({str, int, float, bool, type(None)})  # as most are


def _cells(record: SummarySection | KernelRecord) -> TableRow:
    """A record's fields, each as one cell."""
    row = field_values(record)
    others = [(name, value) for name, value in row.items() if type(value) not in _PLAIN]
    return row | {name: _cell(value) if value else None for name, value in others}


def _cell(value: object) -> Cell:
    if value is None or isinstance(value, str | int | float):
        return value
    assert isinstance(value, list | dict)
    return _flat(value)


def _flat(values: Sequence[object] | Mapping[str, object]) -> str | None:
    """A list or a mapping as the text of one cell."""
    if isinstance(values, dict):  # each is one; asking for a Mapping takes ten times as long
        values = [f"{key}: {_cell(value)}" for key, value in values.items()]
    return "; ".join(map(str, values)) or None


def _counters(report: Report) -> list[TableRow]:
    """In all, of each graph, and of what ran outside them."""
    rows = _counter_rows("all", report.counters.in_all)
    for graph in report.graphs:
        rows += _counter_rows(graph.graph, graph.counter_groups)
    return rows + _counter_rows("none", report.counters.outside)


def _counter_rows(graph: int | str | None, groups: CounterGroups) -> list[TableRow]:
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


def _caches(report: Report) -> list[TableRow]:
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


def _compile(report: Report) -> list[TableRow]:
    names = Names(report)
    return [
        {
            "compile_id": record.compile_id,
            "pass": record.direction if record.outcome == "compiled" else record.outcome,
            "direction": record.direction,
            "outcome": record.outcome,
            "function": names.of_graph(next(iter(record.graphs), None), record.function),
            "graphs": _flat(record.graphs),
            "total_s": record.total_s,
            "longest_phases": _longest(record.phases_s),
            **record.phases_s,
        }
        for record in report.compile.compilations
    ]


def _longest(phases: Phases) -> str:
    """``codegen 1.21, load 0.40``: what took most of it."""
    known = longest_first(phases)
    shown = [(name, took) for name, took in known if took >= 0.1 * known[0][1]][:3]
    return ", ".join(f"{phase(name)} {took:.2f}" for name, took in shown)


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
        Table("ledger", "Where the time of the process went (share: of wall time)", _ledger),
        Table(
            "gpu",
            "Where the time of the GPUs went (share: of the time since the first torch.compile)",
            _gpu,
            frozenset({"name", "eager_s", "idle_s"}),
            ("behind_pct", "spread_pct"),
        ),
        Table(
            "next",
            "What to change next, and what it can win at most",
            _next,
            frozenset({"code", "made_of", "gained_spread_s"}),
            ("seen_s",),
        ),
        Table(
            "compiled",
            "Each torch.compile, and what became of it (ops, time: of all that was captured)",
            _compiled,
            frozenset({"compiled", "target", "limit_hits", "first_eager_call"})
            | {"captured_ops", "graph_calls", "reason_at", "reason"},
            ("shared_graphs", "graphs", "ops_pct", "call"),
        ),
        Table(
            "graphs",
            "Graphs that Dynamo captured (kernels, time: forward + backward)",
            _graphs,
            frozenset(
                {"graph", "direction", "forward_kernels", "backward_kernels", "ended_by"}
                | {"mean_backward_us"}
            ),
            (
                *("name", "ops", "kernels", "cache", "compile_s", "backward_calls"),
                *("mean_call_us", "gpu_time_us"),
            ),
            frozenset({"time_us", "gpu_time_us", "mean_call_us", "longest_call_us"})
            | {"longest_backward_us"},
        ),
        Table("breaks", "What broke graphs or left functions eager, the costliest first", _breaks),
        Table("recompiles", "Functions recompiled, and the guards that failed", _recompiles),
        Table(
            "missing",
            "Eager ops between the graphs",
            _missing,
            frozenset({"count_spread", "share_pct"}),
            ("function", "gpu_time_us", "count"),
        ),
        Table(
            "lines",
            "Your own lines: what was captured from each, and what ran eagerly on it",
            _lines,
            frozenset({"forward_ops", "backward_ops", "eager_ops_spread", "recompile_s"})
            | {"device_time_us", "eager_gpu_us", "graphs", "called"},
            ("function", "kernels"),
            frozenset({"eager_time_us"}),
        ),
        Table(
            "kernels",
            "Generated kernels and extern calls (moved: read and written by one launch)",
            _kernels,
            frozenset(kernel_row(KernelRecord("", ""))).difference(_KERNEL_COLUMNS),
            ("bytes_source", "num_store", "num_load", "graph", "peak_pct", "kernel_category"),
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
            ("graphs",),
        ),
    )
}
