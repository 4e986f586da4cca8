"""The figures of a report that can be limited: each declared once, with how it is reckoned."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from instrumented_backend.compare import items
from instrumented_backend.records import Report
from instrumented_backend.records import compiled as outcomes

EXACT, SAMPLED, ESTIMATED, ONE_RUN = "exact", "sampled", "estimated", "one run"


@dataclass(frozen=True)
class Value:
    """One figure of one report. ``value`` is None where it is not known; ``note`` says why.

    ``spread`` is to either side. ``known`` is "exact", "sampled", "estimated", or "one run": an
    exact time, which would be another in the next run.
    """

    value: float | None
    known: str = EXACT
    spread: float = 0.0
    note: str | None = None


@dataclass(frozen=True)
class Figure:
    """``explained_by`` are the kinds of items that the figure counts, or that move it.

    ``slack`` is how much worse than a baseline it may be, in its own unit.
    """

    name: str
    unit: str
    meaning: str
    read: Callable[[Report], Value]
    explained_by: tuple[str, ...] = ()
    at_least: bool = False  # the limit is a lower one
    in_baseline: bool = False  # compared with a baseline without being named
    by_function: bool = False  # can be limited for one function
    of_ledger: bool = False  # `diff` has the ledger's rows in seconds
    slack: float = 0.0

    def is_worse(self, value: float, limit: float) -> bool:
        return value < limit if self.at_least else value > limit


def _count(read: Callable[[Report], float | None]) -> Callable[[Report], Value]:
    return lambda report: Value(read(report))


def _uncompiled(report: Report) -> float:
    eager = (outcomes.EAGER, outcomes.PARTLY_EAGER, outcomes.RAISED)
    return sum(record.outcome in eager for record in report.compiled)


def _kernels(report: Report) -> float:
    return sum(kernel.language != "extern" for kernel in report.kernels)


def _externs(report: Report) -> Value:
    if not items.kernels_are_known(report):
        return Value(None, note="kernels are known by name only")
    return Value(sum(kernel.language == "extern" for kernel in report.kernels))


def _kernel_bytes(report: Report) -> Value:
    if not items.kernels_are_known(report):
        return Value(None, note="kernels are known by name only")
    unknown = sum(kernel.total_bytes is None for kernel in report.kernels)
    if unknown:
        return Value(None, note=f"the bytes of {unknown} kernels are not known")
    known = EXACT if all(k.bytes_source == "inductor" for k in report.kernels) else ESTIMATED
    return Value(sum((k.total_bytes or 0) * (k.calls or 1) for k in report.kernels), known)


def _captured_ops(report: Report) -> Value:
    ops = report.ops
    if ops.status == "exact":
        return Value(report.summary.pct_ops, note=ops.note)
    return Value(report.summary.pct_ops, SAMPLED, _spread_of_ops(report), ops.note)


def _spread_of_ops(report: Report) -> float:
    """The spread in points. Where all seen ops were alike, those not seen may still differ."""
    ops = report.ops
    if ops.largest_spread is not None:
        return ops.largest_spread
    unseen = 1 - (ops.observed_pct or 0.0) / 100
    return unseen * (100 - (report.summary.pct_ops or 0.0))


def _eager_ops(report: Report) -> Value:
    summary, ops = report.summary, report.ops
    if summary.total_ops is None or summary.captured_ops is None:
        return Value(None, note=ops.note)
    count = summary.total_ops - summary.captured_ops
    if ops.status == "exact":
        return Value(count)
    # The share is captured / total: what it is uncertain by is the total's uncertainty.
    spread = _spread_of_ops(report) / 100 * summary.total_ops
    return Value(count, SAMPLED, spread, ops.note)


def _captured_time(report: Report) -> Value:
    ops = report.ops
    known = ONE_RUN if ops.status == "exact" else SAMPLED
    return Value(report.summary.pct_time, known, ops.pct_time_spread or 0.0, ops.note)


def _time(read: Callable[[Report], float | None]) -> Callable[[Report], Value]:
    return lambda report: Value(read(report), ONE_RUN)


def _ledger(row: str) -> Callable[[Report], Value]:
    def read(report: Report) -> Value:
        ledger = report.ledger
        for known in ledger.rows:
            if (known.row, known.threads) == (row, "main"):
                spread = 100 * (known.spread_s or 0.0) / ledger.wall_s if ledger.wall_s else 0.0
                certainty = SAMPLED if known.status == "sampled" else ONE_RUN
                return Value(ledger.share_pct(known), certainty, spread, ledger.note)
        return Value(None, note=ledger.note or "the report has no ledger")

    return read


_LEDGER = ("startup", "compile", "captured", "eager_ops", "data", "python")

_BREAKS = (items.BREAK, items.SKIPPED)

FIGURES: dict[str, Figure] = {
    figure.name: figure
    for figure in (
        Figure(
            "graph_breaks",
            "",
            "distinct causes that ended a graph or left a function to eager execution",
            _count(lambda report: report.summary.graph_breaks),
            (items.BREAK,),
            in_baseline=True,
            by_function=True,
        ),
        Figure(
            "skipped_functions",
            "",
            "functions that ran eagerly as a whole",
            _count(lambda report: report.summary.skipped_functions),
            (items.SKIPPED,),
            in_baseline=True,
            by_function=True,
        ),
        Figure(
            "uncompiled",
            "",
            "torch.compile calls some or all of whose calls ran eagerly, or raised",
            _count(_uncompiled),
            (items.UNCOMPILED, items.SKIPPED),
            in_baseline=True,
        ),
        Figure(
            "recompiles",
            "",
            "compilations of functions that had been compiled before",
            _count(lambda report: report.summary.recompiles),
            (items.RECOMPILE,),
            in_baseline=True,
            by_function=True,
        ),
        Figure(
            "graphs",
            "",
            "FX graphs that Dynamo captured",
            _count(lambda report: report.summary.graphs),
            (items.BREAK, items.RECOMPILE, items.GRAPH),
            in_baseline=True,
            by_function=True,
        ),
        Figure(
            "kernels",
            "",
            "kernels that Inductor generated",
            _count(_kernels),
            (items.BREAK, items.RECOMPILE, items.EXTERN, items.KERNEL),
            in_baseline=True,
            by_function=True,
        ),
        Figure(
            "extern_kernels",
            "",
            "calls in generated code to kernels that Inductor did not generate",
            _externs,
            (items.RECOMPILE, items.EXTERN),
            in_baseline=True,
            by_function=True,
        ),
        Figure(
            "kernel_bytes",
            "bytes",
            "memory that all kernels move in one call of each graph",
            _kernel_bytes,
            (items.BREAK, items.RECOMPILE, items.EXTERN, items.KERNEL),
            in_baseline=True,
        ),
        Figure(
            "eager_ops",
            "",
            "ops that ran outside of compiled graphs",
            _eager_ops,
            (*_BREAKS, items.UNCOMPILED, items.EAGER),
        ),
        Figure(
            "captured_ops_pct",
            "%",
            "share of the program's ops that compiled graphs took over",
            _captured_ops,
            (*_BREAKS, items.UNCOMPILED, items.EAGER),
            at_least=True,
            in_baseline=True,
            slack=1.0,
        ),
        Figure(
            "captured_time_pct",
            "%",
            "share of op time in compiled graphs",
            _captured_time,
            (*_BREAKS, items.UNCOMPILED, items.EAGER),
            at_least=True,
        ),
        Figure(
            "cache_misses",
            "",
            "graphs that were not in Inductor's caches: 0 for a run with warm caches",
            _count(lambda report: report.caches.graphs.miss),
            (items.MISS,),
        ),
        Figure(
            "cache_bypasses",
            "",
            "graphs that cannot be cached",
            _count(lambda report: report.caches.graphs.bypass),
            (items.BYPASS,),
            in_baseline=True,
        ),
        Figure(
            "compile_s",
            "s",
            "seconds spent compiling",
            _time(lambda report: report.compile.total_s),
            (items.RECOMPILE, items.GRAPH),
            by_function=True,
        ),
        Figure(
            "recompile_s",
            "s",
            "seconds spent recompiling",
            _time(lambda report: report.compile.later_s),
            (items.RECOMPILE,),
        ),
        Figure(
            "wall_s",
            "s",
            "seconds from the process's start to its end",
            _time(lambda report: report.ledger.wall_s or report.run.wall_s),
        ),
        *(
            Figure(
                f"ledger_{row}_pct",
                "%",
                f"share of the ledger's row {row} in the wall time",
                _ledger(row),
                at_least=row == "captured",
                of_ledger=True,
            )
            for row in _LEDGER
        ),
    )
}


def of_function(name: str, found: Iterable[items.Item]) -> dict[str, Value] | None:
    """The figures of one function, by its name or its label; None where it was not compiled."""
    mine = [item for item in found if name in (item.label, item.function)]
    if not any(item.kind in (items.GRAPH, *_BREAKS) for item in mine):
        return None
    counts = {
        figure: Value(sum(item.kind == kind for item in mine))
        for figure, kind in (
            ("graph_breaks", items.BREAK),
            ("skipped_functions", items.SKIPPED),
            ("graphs", items.GRAPH),
            ("kernels", items.KERNEL),
            ("extern_kernels", items.EXTERN),
        )
    }
    counts["recompiles"] = Value(sum(item.count for item in mine if item.kind == items.RECOMPILE))
    seconds = [item.cost_s for item in mine if item.kind == items.GRAPH]
    known = [one for one in seconds if one is not None]
    counts["compile_s"] = Value(sum(known) if len(known) == len(seconds) else None, ONE_RUN)
    return counts


def functions_in(found: Iterable[items.Item]) -> list[str]:
    """The labels that `of_function` knows."""
    labels = (item.label for item in found if item.kind in (items.GRAPH, *_BREAKS))
    return list(dict.fromkeys(label for label in labels if label))
