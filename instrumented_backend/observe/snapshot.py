"""Puts the observers' state together into a `Report`, a copy that later events don't change."""

import copy
import os
import platform
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from instrumented_backend import torch_compat
from instrumented_backend.observe.compile_log import CompileLog
from instrumented_backend.observe.counters import Counts, add, metrics, moved
from instrumented_backend.observe.graphs import ObservedGraph
from instrumented_backend.records import GraphRecord, KernelRecord, Report

NOT_MEASURED = "captured and total ops, op time and device time are not measured: null"


@dataclass(frozen=True)
class Started:
    """When the observation began."""

    date: datetime
    clock_s: float

    @classmethod
    def now(cls) -> "Started":
        return cls(datetime.now(UTC), time.monotonic())


def assemble(
    *,
    graphs: Iterable[ObservedGraph],
    log: CompileLog,
    outside: Counts,
    devices: Iterable[str],
    started: Started,
    notes: list[str],
) -> Report:
    """The report of this moment."""
    shown = [
        (graph, record)
        for graph, record in ((graph, _graph_record(graph)) for graph in graphs)
        if not graph.compiled_before_reset or record.calls or record.backward_calls
    ]
    records = [record for _, record in shown]
    breaks = [copy.copy(record) for record in list(log.breaks.values())]
    notes = [NOT_MEASURED, *notes]
    if log.dropped:
        notes.append(f"{log.dropped} compilations are counted in the totals but not listed")
    total: Counts = {}
    outside = dict(outside)
    for graph, _ in shown:
        kept, cold_only = graph.counts()
        add(total, kept)
        add(outside, cold_only)
    return Report(
        run=_run(devices, started),
        summary={
            "graphs": len(records),
            "graph_calls": sum(record.calls for record in records),
            "backward_calls": sum(record.backward_calls for record in records),
            "graph_breaks": sum(record.kind == "break" for record in breaks),
            "skipped_functions": sum(record.kind == "skipped" for record in breaks),
            "recompiles": len(log.recompiles),
            "graph_ops": sum(record.ops or 0 for record in records),
            "captured_ops": None,
            "total_ops": None,
            "pct_ops": None,
            "pct_time": None,
        },
        graphs=records,
        kernels=[kernel for graph, record in shown for kernel in _kernels(graph, record.graph)],
        ops={"captured": None, "eager": None, "missing": None},
        breaks=breaks,
        recompiles=list(log.recompiles),
        caches=_caches(records),
        counters={
            "inductor_metrics": metrics(total),
            "graphs": moved(total),
            "outside_inductor_metrics": metrics(outside),
            "outside_graphs": moved(outside),
        },
        compile=_compile(log),
        notes=notes,
    )


def _kernels(graph: ObservedGraph, number: int | None) -> Iterator[KernelRecord]:
    for code in list(graph.code):
        for kernel in code.kernels():
            kernel.graph = number
            yield kernel


def _graph_record(graph: ObservedGraph) -> GraphRecord:
    record = copy.deepcopy(graph.record)
    record.code = [code.record for code in list(graph.code)]
    record.calls = graph.calls.value
    record.backward_calls = graph.backward_calls.value
    counts, _ = graph.counts()
    record.inductor_metrics = metrics(counts)
    record.counters = moved(counts)
    if graph.compiled_before_reset:
        record.compile_s = {}
    else:
        _describe_caches(record)
    return record


def _describe_caches(record: GraphRecord) -> None:
    """Which caches held the graph, from the counters that its own compilation moved."""
    aot = record.counters.get("aot_autograd", {})
    inductor = record.counters.get("inductor", {})
    record.fx_graph_cache = {
        "hits": inductor.get("fxgraph_cache_hit", 0),
        "misses": inductor.get("fxgraph_cache_miss", 0),
        "bypasses": inductor.get("fxgraph_cache_bypass", 0),
    }
    record.aot_autograd_cache = next(
        (state for state in ("bypass", "miss", "hit") if aot.get(f"autograd_cache_{state}")), "off"
    )
    fx = record.fx_graph_cache
    if record.aot_autograd_cache == "hit":
        record.cache = "hit"
    elif fx["misses"]:
        record.cache = "miss"
    elif fx["bypasses"]:
        record.cache = "bypass"
    elif fx["hits"]:
        record.cache = "hit"
    else:
        record.cache = record.aot_autograd_cache


def _caches(records: list[GraphRecord]) -> dict[str, Any]:
    states = Counter(record.cache for record in records)
    return {
        "graphs": {state: states[state] for state in ("hit", "miss", "bypass", "off")},
        "aot_autograd": dict(Counter(record.aot_autograd_cache for record in records)),
        "fx_graph": {
            kind: sum(record.fx_graph_cache.get(kind, 0) for record in records)
            for kind in ("hits", "misses", "bypasses")
        },
        "bypass_reasons": dict(
            Counter(record.cache_reason for record in records if record.cache_reason)
        ),
    }


def _compile(log: CompileLog) -> dict[str, Any]:
    compilations = list(log.compilations)
    phases: dict[str, float | None] = {}
    for record in compilations:
        for phase, seconds in record.phases_s.items():
            so_far = phases.get(phase, 0.0)
            phases[phase] = None if so_far is None or seconds is None else so_far + seconds
    return {
        "total_s": sum(record.total_s or 0.0 for record in compilations),
        "phases": phases,
        "compilations": compilations,
    }


def _run(devices: Iterable[str], started: Started) -> dict[str, Any]:
    return {
        "torch": torch_compat.version(),
        "device": ", ".join(torch_compat.device_names(devices)) or "cpu",
        "python": platform.python_version(),
        "rank": torch_compat.rank(),
        "pid": os.getpid(),
        "command": " ".join(sys.argv),
        "started": started.date.isoformat(timespec="seconds"),
        "wall_s": time.monotonic() - started.clock_s,
    }
