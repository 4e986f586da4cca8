"""Puts the observers' state together into a `Report`, a copy that later events don't change."""

import copy
import math
import os
import platform
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from instrumented_backend.observe.compile.caches import cache_section, describe_caches
from instrumented_backend.observe.compile.log import CompileLog
from instrumented_backend.observe.device.kernels import add_times
from instrumented_backend.observe.graphs.counters import Counts, add, metrics, moved
from instrumented_backend.observe.graphs.graph import ObservedGraph
from instrumented_backend.observe.native.keys import region_key
from instrumented_backend.observe.ops.estimate import SPREAD, Estimate, estimate
from instrumented_backend.observe.ops.meter import Observed
from instrumented_backend.records import (
    CapturedRecord,
    CompileSection,
    CountersSection,
    CudaGraphsSection,
    GraphRecord,
    KernelRecord,
    Note,
    OpsRecord,
    Report,
    RunSection,
    SummarySection,
    notes,
)
from instrumented_backend.torch_compat import machine

if TYPE_CHECKING:
    from instrumented_backend.observe.device.meter import DeviceMeter


# Worth saying of time that the observed calls do not explain: seconds, and the part of the run.
UNACCOUNTED_S, UNACCOUNTED = 1.0, 0.2


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
    cudagraphs: CudaGraphsSection,
    observed: Observed | None,
    not_observed: str | None,
    device: "DeviceMeter | None",
    outside: Counts,
    devices: Iterable[str],
    started: Started,
    remarks: list[Note],
) -> Report:
    """The report of this moment; ``not_observed`` says why there are no ops in it."""
    known = [(graph, _graph_record(graph)) for graph in graphs]
    shown = [
        (graph, record)
        for graph, record in known
        if not (graph.compiled_before_reset or graph.discarded)
        or record.calls
        or record.backward_calls
    ]
    records = [record for _, record in shown]
    ops, found = _ops(records, observed, not_observed)
    if device is not None:
        ops.device = device.record(_calls(records))
    kernels = [kernel for graph, record in shown for kernel in _kernels(graph, record.graph)]
    if ops.device is not None:
        add_times(kernels, ops.device, {record.graph: record for record in records})
    total: Counts = {}
    outside = dict(outside)
    listed = {id(graph) for graph, _ in shown}
    for graph, _ in known:
        kept, cold_only = graph.counts()
        add(total if id(graph) in listed else outside, kept)
        add(outside, cold_only)
    breaks = log.breaks.records(records, found.by_place if found else None)
    breaks += log.breaks.unplaced(_of_group("unimplemented", total, outside))
    report = Report(
        run=_run(devices, started),
        summary=SummarySection(
            graphs=len(records),
            graph_calls=sum(record.calls for record in records),
            backward_calls=sum(record.backward_calls for record in records),
            graph_breaks=sum(record.kind != "gave up" for record in breaks),
            skipped_functions=sum(len(record.skipped) for record in breaks),
            recompiles=log.recompiles.count,
            graph_ops=sum(record.ops or 0 for record in records),
            captured_ops=ops.captured.ops,
            total_ops=ops.total_ops,
            pct_ops=_percent(ops.captured.ops, ops.total_ops),
            pct_time=_percent(ops.captured.time_us, ops.total_time_us),
        ),
        graphs=records,
        kernels=kernels,
        ops=ops,
        breaks=breaks,
        recompiles=log.recompiles.records(),
        caches=cache_section(records, _of_group("inductor", total, outside), log.steps, log.caches),
        counters=CountersSection(
            inductor_metrics=metrics(total),
            graphs=moved(total),
            outside_inductor_metrics=metrics(outside),
            outside_graphs=moved(outside),
        ),
        compile=_compile(log, cudagraphs),
        notes=[],
    )
    if ops.note is not None and ops.note_code is not None:
        report.add_note(ops.note_code, ops.note)
    report.add_notes(*remarks, *_left_out(log))
    return report


def _of_group(wanted: str, *counts: Counts) -> dict[str, int]:
    """The counters of one group; where several have one, the last."""
    return {
        name: count for each in counts for (group, name), count in each.items() if group == wanted
    }


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


def _ops(
    records: list[GraphRecord], observed: Observed | None, not_observed: str | None
) -> tuple[OpsRecord, Estimate | None]:
    calls = _calls(records)
    captured = _captured_ops(records, {})
    ops = OpsRecord("unknown", None, captured, None, None, None, None, [], [], not_observed)
    if observed is None:
        ops.note_code = notes.OPS_UNKNOWN
        if ops.note is None:
            reason = "no window was open while the graphs ran" if calls else "no graph was called"
            ops.note = f"{reason}: eager ops are unknown"
        return ops, None
    found = estimate(observed, calls)
    _set_region_times(records, found)
    if found.nested:
        captured = ops.captured = _captured_ops(records, found.nested)
        if not found.exact:
            captured.estimated = sorted({*captured.estimated, "calls inside other graphs"})
    captured.time_us = sum(found.region_ns.values()) / 1e3
    ops.status = "exact" if found.exact else "sampled"
    ops.observed_pct = _percent(found.observed_calls, found.calls)
    ops.total_time_us = captured.time_us + found.eager_ns / 1e3
    if captured.ops is not None:
        ops.total_ops = captured.ops + round(found.eager_ops)
    ops.pct_ops_spread, ops.pct_time_spread = _spreads(captured.ops, found)
    ops.eager, ops.missing = found.eager, found.missing
    ops.unaccounted_s = found.unaccounted_s
    note = _ops_note(observed, found)
    ops.note, ops.note_code = (None, None) if note is None else (note.text, note.code)
    return ops, found


def _calls(records: list[GraphRecord]) -> dict[int, int]:
    """By region key."""
    calls: dict[int, int] = {}
    for record in records:
        for backward, count in ((False, record.calls), (True, record.backward_calls)):
            if count:
                calls[region_key(record.graph, backward)] = count
    return calls


def _captured_ops(records: list[GraphRecord], nested: dict[int, int]) -> CapturedRecord:
    """Exact, but for what is ``estimated``; None where a graph that ran could not be counted.

    An operator of the program's can call a compiled function. ``nested`` has, by region key, the
    calls inside another graph's, where they are a part of an op of that one.
    """
    forward = backward = 0
    known = True
    for record in records:
        per_call = record.forward_ops
        calls = record.calls - nested.get(region_key(record.graph, False), 0)
        backwards = record.backward_calls - nested.get(region_key(record.graph, True), 0)
        if record.direction == "backward":  # of compiled autograd
            backward += (per_call or 0) * backwards
        else:
            forward += (per_call or 0) * calls
            backward += (record.backward_ops or 0) * backwards
            known &= not record.backward_calls or record.backward_ops is not None
        known &= per_call is not None or not (record.calls or record.backward_calls)
    return CapturedRecord(
        ops=forward + backward if known else None,
        forward_ops=forward if known else None,
        backward_ops=backward if known else None,
        estimated=sorted({reason for record in records for reason in record.ops_estimated}),
    )


def _set_region_times(records: list[GraphRecord], found: Estimate) -> None:
    for record in records:
        forward_ns = found.region_ns.get(region_key(record.graph, False))
        backward_ns = found.region_ns.get(region_key(record.graph, True))
        record.forward_time_us = None if forward_ns is None else forward_ns / 1e3
        record.backward_time_us = None if backward_ns is None else backward_ns / 1e3


def _spreads(captured_ops: int | None, found: Estimate) -> tuple[float | None, float | None]:
    """Of the two percentages, in points: the derivative of c / (c + e), times the errors."""
    captured_ns = sum(found.region_ns.values())
    total_ns = captured_ns + found.eager_ns
    time = None
    if total_ns:
        time = math.hypot(
            captured_ns * found.eager_ns_error, found.eager_ns * found.region_ns_error
        )
        time *= 100 * SPREAD / total_ns**2
    ops = None
    if captured_ops is not None and captured_ops + found.eager_ops:
        total = captured_ops + found.eager_ops
        ops = 100 * SPREAD * captured_ops * found.eager_ops_error / total**2
    return tuple(  # type: ignore[return-value]
        None if spread is None or not math.isfinite(spread) else spread for spread in (ops, time)
    )


def _ops_note(observed: Observed, found: Estimate) -> Note | None:
    if found.unseen_calls:
        return Note(
            notes.OPS_UNSEEN_CALLS,
            f"{found.unseen_calls} graph calls belong to graphs that no window saw: their time and "
            "the eager ops after them are missing",
        )
    if is_much(found.unaccounted_s, observed.elapsed_s):
        return Note(
            notes.OPS_UNACCOUNTED,
            f"{found.unaccounted_s:.1f} s of the run are not accounted for: eager ops far from any "
            "graph call may be missing",
        )
    if observed.lost:
        return Note(
            notes.OPS_TOO_MANY_NAMES,
            f"{observed.lost} eager ops had one of too many names, and are missing",
        )
    return None


def is_much(unaccounted_s: float | None, elapsed_s: float) -> bool:
    """Too much for the calls that were seen to be like the others."""
    if unaccounted_s is None:
        return False
    return unaccounted_s > max(UNACCOUNTED_S, UNACCOUNTED * elapsed_s)


def _percent(part: float | None, whole: float | None) -> float | None:
    # Divided first: x / x is 1, where 100 * x / x can be 100.00000000000001.
    return None if part is None or not whole else 100 * (part / whole)


def _left_out(log: CompileLog) -> list[Note]:
    return [
        Note(notes.NOT_LISTED, f"{count} {what}")
        for count, what in (
            (log.dropped, "compilations are counted in the totals but not listed"),
            (log.breaks.left_out, "graph breaks of further causes are not listed"),
            (log.recompiles.left_out, "recompilations of further functions are not listed"),
        )
        if count
    ]


def _compile(log: CompileLog, cudagraphs: CudaGraphsSection) -> CompileSection:
    totals = log.totals
    return CompileSection(
        total_s=totals.total_s,
        count=totals.count,
        **totals.parts_s,
        phases=dict(totals.phases_s),
        compilations=[copy.copy(record) for record in list(log.compilations)],
        cudagraphs=cudagraphs,
    )


def _run(devices: Iterable[str], started: Started) -> RunSection:
    return RunSection(
        torch=machine.version(),
        device=", ".join(machine.device_names(devices)) or "cpu",
        python=platform.python_version(),
        rank=machine.rank(),
        pid=os.getpid(),
        command=" ".join(sys.argv),
        started=started.date.isoformat(timespec="seconds"),
        wall_s=time.monotonic() - started.clock_s,
    )
