"""A report as a few figures for dashboards, under names that stay.

`METRICS` is the list; the page about it is made from nothing else, and a test holds it to 20.
"""

from collections.abc import Callable
from dataclasses import dataclass

from instrumented_backend.records import Report
from instrumented_backend.records.gpu import GpuRow

PREFIX = "instrumented/"


@dataclass(frozen=True)
class Metric:
    """``is_count``: it only grows. ``read`` returns None where the figure is unknown."""

    name: str
    meaning: str
    read: Callable[[Report], float | None]
    unit: str = "1"
    is_count: bool = False


def _ledger(row: str) -> Callable[[Report], float | None]:
    """The share of the wall time of the main thread, in percent."""

    def read(report: Report) -> float | None:
        seconds, wall_s = report.ledger.seconds(row), report.ledger.wall_s
        return 100 * (seconds / wall_s) if seconds is not None and wall_s else None

    return read


def _gpu(spent: Callable[[GpuRow], float]) -> Callable[[Report], float | None]:
    """The share of the timelines of all GPUs, in percent."""

    def read(report: Report) -> float | None:
        gpus, timeline_s = report.gpu.gpus, report.gpu.timeline_s
        spent_s = sum(map(spent, gpus))
        return 100 * (spent_s / (timeline_s * len(gpus))) if gpus and timeline_s else None

    return read


def _cached(report: Report) -> float | None:
    return 100 * (report.caches.graphs.hit / len(report.graphs)) if report.graphs else None


METRICS = (
    Metric("graphs", "graphs that were compiled", lambda r: r.summary.graphs, is_count=True),
    Metric(
        "graph_calls", "calls of compiled graphs", lambda r: r.summary.graph_calls, is_count=True
    ),
    Metric(
        "backward_calls",
        "calls of compiled backward graphs",
        lambda r: r.summary.backward_calls,
        is_count=True,
    ),
    Metric(
        "graph_breaks",
        "distinct causes that ended a graph",
        lambda r: r.summary.graph_breaks,
        is_count=True,
    ),
    Metric(
        "skipped_functions",
        "functions that were left to eager execution",
        lambda r: r.summary.skipped_functions,
        is_count=True,
    ),
    Metric(
        "recompiles",
        "compilations of a function that had been compiled before",
        lambda r: r.summary.recompiles,
        is_count=True,
    ),
    Metric(
        "recompile_limit_hits",
        "calls that the recompile limit left to eager execution",
        lambda r: sum(record.limit_hits for record in r.recompiles),
        is_count=True,
    ),
    Metric(
        "compile_s",
        "seconds of compiling, on all threads",
        lambda r: r.compile.total_s,
        "s",
        is_count=True,
    ),
    Metric(
        "recompile_s",
        "those of them in recompiling",
        lambda r: sum(record.compile_s for record in r.recompiles),
        "s",
        is_count=True,
    ),
    Metric("cached_pct", "graphs of which all parts came from a cache", _cached, "%"),
    Metric("captured_ops_pct", "ops in graphs, of all ops", lambda r: r.summary.pct_ops, "%"),
    Metric("op_time_pct", "time in graphs, of all op time", lambda r: r.summary.pct_time, "%"),
    Metric("startup_pct", "wall time before the first torch.compile", _ledger("startup"), "%"),
    Metric("compile_pct", "wall time in compiling", _ledger("compile"), "%"),
    Metric("captured_pct", "wall time in compiled code", _ledger("captured"), "%"),
    Metric("eager_ops_pct", "wall time in eager ops", _ledger("eager_ops"), "%"),
    Metric("data_pct", "wall time in waiting for a DataLoader", _ledger("data"), "%"),
    Metric("python_pct", "the rest of the wall time", _ledger("python"), "%"),
    Metric(
        "gpu_captured_pct", "the GPUs' time in compiled code", _gpu(lambda one: one.captured_s), "%"
    ),
    Metric("gpu_idle_pct", "the GPUs' time known to be idle", _gpu(lambda gpu: gpu.idle_s), "%"),
)


def metrics_of(report: Report, prefix: str = PREFIX) -> dict[str, float]:
    """``{"instrumented/graphs": 2, "instrumented/captured_pct": 61.3, ...}``

    For any logger that takes names and numbers. What is unknown is left out. Counts are exact;
    shares are sampled where the report says so, and those of the wall time are of the main thread.
    """
    return {
        prefix + metric.name: value
        for metric in METRICS
        if (value := metric.read(report)) is not None
    }
