"""Puts the observers' state together into a `Report`, a copy that later events don't change."""

import copy
import os
import platform
import sys
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from instrumented_backend.observe.compile.caches import cache_section, describe_caches
from instrumented_backend.observe.compile.log import CompileLog
from instrumented_backend.observe.device.externs import add_extern_times
from instrumented_backend.observe.device.kernels import add_times
from instrumented_backend.observe.gpu_ledger import gpu_ledger
from instrumented_backend.observe.graphs.counters import Counts, add, metrics, moved
from instrumented_backend.observe.graphs.graph import ObservedGraph
from instrumented_backend.observe.kept import Kept, Sums
from instrumented_backend.observe.ledger import ledger, ledger_without_meter
from instrumented_backend.observe.native.keys import region_key
from instrumented_backend.observe.ops.estimate import Estimate, OpSums, estimate
from instrumented_backend.observe.ops.lines import Line
from instrumented_backend.observe.ops.observed import Observed
from instrumented_backend.observe.ops.section import (
    nested_calls,
    ops_section,
    ops_unknown,
    set_region_times,
)
from instrumented_backend.observe.source_files import SourceFiles
from instrumented_backend.observe.source_lines import add_lines
from instrumented_backend.records import (
    BreakRecord,
    CompileSection,
    CountersSection,
    CudaGraphsSection,
    DeviceRecord,
    GraphRecord,
    KernelRecord,
    Note,
    OpsRecord,
    Report,
    RunSection,
    SummarySection,
    notes,
)
from instrumented_backend.records.causes import GAVE_UP
from instrumented_backend.records.fields import field_values
from instrumented_backend.records.report import ENDED
from instrumented_backend.torch_compat import machine
from instrumented_backend.traces.op_totals import RegionOps

if TYPE_CHECKING:
    from instrumented_backend.observe.device.meter import DeviceMeter


Value = TypeVar("Value")
Graphs = list[tuple[ObservedGraph, GraphRecord]]


@dataclass(frozen=True)
class Started:
    """When the observation began."""

    date: datetime
    clock_s: float
    startup_s: float  # how old the process was; 0 where the observation was begun afresh

    @classmethod
    def now(cls, startup_s: float = 0.0) -> "Started":
        return cls(datetime.now(UTC), time.monotonic(), startup_s)


def assemble(
    *,
    graphs: Iterable[ObservedGraph],
    log: CompileLog,
    cudagraphs: CudaGraphsSection,
    observed: Observed | None,
    not_observed: str | None,
    device: "DeviceMeter | None",
    outside: Counts,
    devices: Iterable[str],
    started: Started,
    sources: SourceFiles,
    remarks: list[Note],
    guard: Callable[[str], AbstractContextManager[None]],
    status: str = ENDED,
    kept: Kept | None = None,
) -> Report:
    """The report of this moment; ``not_observed`` says why ops, or those in graphs, are unknown.

    A snapshot gives and takes what is ``kept``; its records are not for others to change. ``guard``
    contains a failure in a part that the others do without.
    """
    if kept is None:
        known = [(graph, _graph_record(graph)) for graph in graphs]
    else:
        known = kept.known(graphs, _graph_record)
    shown = [pair for pair in known if _is_listed(*pair)]
    records = [record for _, record in shown]
    found = None
    if kept is not None and kept.sums is not None and not kept.estimated:
        sums = kept.sums
        if observed is not None:
            set_region_times(records, observed.regions)
    else:
        if observed is not None:
            found = estimate(observed)
        sums = _sums(records, observed, found, not_observed, started, log.totals.total_s, guard)
    ops = sums.ops
    by_place = _by_place(ops, found, kept)
    if device is not None:
        ops.device = device.record(_calls(records))

    def once(name: str, make: Callable[[], Value], *key: Hashable) -> Value:
        """The same as in the last snapshot, where neither graphs nor the key have changed."""
        return (
            make() if kept is None else kept.value(name, (kept.generation, len(shown), *key), make)
        )

    of_graphs, beside = once("counters", lambda: _moved_by(known, shown))
    of_others = dict(outside)
    add(of_others, beside)
    with log.reading():
        breaks = log.breaks.records(records, by_place)
        recompiles = log.recompiles.records()
        compiled = _compile(log, cudagraphs, copied=kept is None)
    breaks += log.breaks.unplaced(_of_group("unimplemented", of_graphs, of_others))
    looked_up = _of_group("inductor", of_graphs, of_others)
    report = Report(
        run=_run(devices, started, status),
        summary=_summary(records, breaks, log, ops),
        graphs=records,
        kernels=_kernels(shown, ops.device, device.ops if device else {})
        if kept is None
        else kept.kernels(shown),
        ops=ops,
        breaks=breaks,
        recompiles=recompiles,
        caches=once(
            "caches",
            lambda: cache_section(records, looked_up, log.steps, log.caches),
            *(log.totals.count, sum(log.steps.values()), sum(looked_up.values())),
        ),
        counters=_counters(of_graphs, of_others),
        compile=compiled,
        notes=[],
        compiling=log.live.compiling(),
        ledger=sums.ledger,
        gpu=sums.gpu,
    )
    if ops.note is not None and ops.note_code is not None:
        report.add_note(ops.note_code, ops.note)
    report.add_notes(*remarks, *_left_out(log, kept))
    if kept is not None:
        kept.sums = sums
        if not kept.listed:
            report.lines, report.files = kept.listing.lines, kept.listing.files
            return report
    with guard("lines"):
        lined = [(graph.ops, record) for graph, record in shown]
        add_lines(report, lined, found, nested_calls(observed) if observed else {}, sources)
    if kept is not None:
        kept.listing.lines, kept.listing.files = report.lines, report.files
    return report


def _sums(
    records: list[GraphRecord],
    observed: Observed | None,
    found: Estimate | None,
    not_observed: str | None,
    started: Started,
    compile_s: float,
    guard: Callable[[str], AbstractContextManager[None]],
) -> Sums:
    """The graphs' records get their time, on the GPU too."""
    if observed is None or found is None:
        wall_s = time.monotonic() - started.clock_s
        sums = Sums(
            ops_unknown(records, not_observed),
            ledger_without_meter(started.startup_s, wall_s, compile_s),
        )
    else:
        set_region_times(records, observed.regions)
        sums = Sums(
            ops_section(records, observed, found, not_observed),
            ledger(observed, found, started.startup_s),
        )
    with guard("GPU ledger"):
        sums.gpu = gpu_ledger(observed, found, records)
    return sums


def _by_place(
    ops: OpsRecord, found: Estimate | None, kept: Kept | None
) -> Mapping[tuple[int, Line], OpSums] | None:
    """Eager ops by region and line. A snapshot may list them as an earlier one did."""
    if kept is None:
        return found.by_place if found else None
    if kept.listed:
        kept.listing.take(ops, found)
    elif found is not None:
        kept.listing.give(ops)
    return kept.listing.by_place


def _is_listed(graph: ObservedGraph, record: GraphRecord) -> bool:
    """One compiled before a reset, or that Dynamo gave up, is listed once it is called."""
    is_past = graph.compiled_before_reset or graph.discarded
    return not is_past or bool(record.calls or record.backward_calls)


def _moved_by(known: Graphs, shown: Graphs) -> tuple[Counts, Counts]:
    """The counters that the listed graphs moved, and those that compiling did beside them."""
    of_graphs: Counts = {}
    of_others: Counts = {}
    listed = {id(graph) for graph, _ in shown}
    for graph, _ in known:
        kept, cold_only = graph.counts()
        add(of_graphs if id(graph) in listed else of_others, kept)
        add(of_others, cold_only)
    return of_graphs, of_others


def _of_group(wanted: str, *counts: Counts) -> dict[str, int]:
    """The counters of one group. Where several sets have the same counter, the last one counts."""
    return {
        name: count for each in counts for (group, name), count in each.items() if group == wanted
    }


def _counters(of_graphs: Counts, of_others: Counts) -> CountersSection:
    return CountersSection(
        inductor_metrics=metrics(of_graphs),
        graphs=moved(of_graphs),
        outside_inductor_metrics=metrics(of_others),
        outside_graphs=moved(of_others),
    )


def _summary(
    records: list[GraphRecord], breaks: list[BreakRecord], log: CompileLog, ops: OpsRecord
) -> SummarySection:
    return SummarySection(
        graphs=len(records),
        graph_calls=sum(record.calls for record in records),
        backward_calls=sum(record.backward_calls for record in records),
        graph_breaks=sum(record.kind != GAVE_UP for record in breaks),
        skipped_functions=sum(len(record.skipped) for record in breaks),
        recompiles=log.recompiles.count,
        graph_ops=sum(record.ops or 0 for record in records),
        captured_ops=ops.captured.ops,
        total_ops=ops.total_ops,
        pct_ops=_percent(ops.captured.ops, ops.total_ops),
        pct_time=_percent(ops.captured.time_us, ops.total_time_us),
    )


def _kernels(
    shown: Graphs, device: DeviceRecord | None, launched: Mapping[int, RegionOps]
) -> list[KernelRecord]:
    kernels = []
    for graph, record in shown:
        for code in list(graph.code):
            for kernel in code.kernels():
                kernel.graph = record.graph
                kernels.append(kernel)
    if device is not None:
        records = {record.graph: record for _, record in shown}
        add_times(kernels, device, records)
        add_extern_times(kernels, launched, records)
    return kernels


def _graph_record(graph: ObservedGraph) -> GraphRecord:
    record = _copied(graph.record)
    record.code = [code.record for code in list(graph.code)]
    record.calls = graph.calls.value
    record.backward_calls = graph.backward_calls.value
    if graph.ops is not None:
        record.forward_ops, record.backward_ops = graph.ops.forward, graph.ops.backward
        record.ops_estimated = dict(graph.ops.estimated)
    counts, _ = graph.counts()
    record.inductor_metrics = metrics(counts)
    record.counters = moved(counts)
    if graph.compiled_before_reset:
        record.compile_s = {}
    else:
        describe_caches(record)
    return record


def _copied(record: GraphRecord) -> GraphRecord:
    """Without its code. Each mapping is copied at once, whatever the thread does that compiles."""
    copied = copy.copy(record)
    for name, value in field_values(record).items():
        if isinstance(value, dict):
            setattr(copied, name, dict(value))
    return copied


def _calls(records: list[GraphRecord]) -> dict[int, int]:
    """By region key."""
    calls: dict[int, int] = {}
    for record in records:
        for backward, count in ((False, record.calls), (True, record.backward_calls)):
            if count:
                calls[region_key(record.graph, backward)] = count
    return calls


def _percent(part: float | None, whole: float | None) -> float | None:
    # Divided first: x / x is 1, where 100 * x / x can be 100.00000000000001.
    return None if part is None or not whole else 100 * (part / whole)


def _left_out(log: CompileLog, kept: Kept | None) -> list[Note]:
    kernels = 0 if kept is None else kept.left_out
    return [
        Note(notes.NOT_LISTED, f"{count} {what}")
        for count, what in (
            (log.dropped, "compilations are counted in the totals but not listed"),
            (log.breaks.left_out, "graph breaks of further causes are not listed"),
            (log.recompiles.left_out, "recompilations of further functions are not listed"),
            (kernels, "more kernels are listed when the program ends"),
        )
        if count
    ]


def _compile(log: CompileLog, cudagraphs: CudaGraphsSection, copied: bool) -> CompileSection:
    totals = log.totals
    return CompileSection(
        total_s=totals.total_s,
        count=totals.count,
        **totals.parts_s,
        phases=dict(totals.phases_s),
        compilations=list(map(copy.copy, log.compilations) if copied else log.compilations),
        cudagraphs=cudagraphs,
    )


def _run(devices: Iterable[str], started: Started, status: str) -> RunSection:
    return RunSection(
        torch=machine.version(),
        device=", ".join(machine.device_names(devices)) or "cpu",
        python=platform.python_version(),
        rank=machine.rank(),
        pid=os.getpid(),
        command=" ".join(sys.argv),
        program=os.path.basename(sys.argv[0]) if sys.argv else None,
        started=started.date.isoformat(timespec="seconds"),
        wall_s=time.monotonic() - started.clock_s,
        worker=machine.worker(),
        status=status,
        seen_at=time.time(),
        float32_matmul_precision=machine.float32_matmul_precision(),
    )
