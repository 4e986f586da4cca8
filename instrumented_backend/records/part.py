"""A part of a run: what came between two reports of one process."""

import copy
import dataclasses
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

from instrumented_backend.records.causes import GAVE_UP, BreakRecord, RecompileRecord
from instrumented_backend.records.compilation import (
    CachesSection,
    CacheStates,
    CompileSection,
    CountersSection,
    CudaGraphsSection,
)
from instrumented_backend.records.gpu import GpuRow, GpuSection
from instrumented_backend.records.graphs import GraphRecord, KernelRecord
from instrumented_backend.records.ledger import LedgerSection
from instrumented_backend.records.lines import LineRecord
from instrumented_backend.records.notes import GPU_UNKNOWN, PART, Note
from instrumented_backend.records.ops import (
    CapturedRecord,
    EagerOpRecord,
    MissingRecord,
    OpsRecord,
)
from instrumented_backend.records.report import Report

Record = TypeVar("Record")


def part(before: Report, after: Report) -> Report:
    """What ``after`` has and ``before`` has not: counts, times, and what is new in the lists.

    What cannot be told for a part, such as the longest call of a graph that was called before, is
    None. Spreads are those of both reports added up, which is the most that they can be.
    """
    result = copy.deepcopy(after)
    old = {graph.graph: graph for graph in before.graphs}
    result.run.wall_s = _less(after.run.wall_s, before.run.wall_s)
    result.graphs = [graph for graph in result.graphs if _graph(graph, old.get(graph.graph))]
    kept = {graph.graph for graph in result.graphs}
    kernel_places = _kernels(result, before, kept, set(old))
    result.ops = _ops(before.ops, after.ops)
    break_places = _breaks(result, before)
    recompile_places = _recompiles(result, before)
    result.compile = _compile(before.compile, after.compile)
    result.caches = _caches(before.caches, after.caches, result.graphs, old)
    result.counters = _counters(before.counters, after.counters)
    result.ledger = _ledger(before.ledger, after.ledger)
    result.gpu = _gpu(before, after)
    _compiled(result, before)
    _lines(result, before, break_places, recompile_places, kernel_places)
    counted = Counter(zip(before.notes, before.note_codes, strict=False))
    new = [note for note in after.coded_notes() if not counted[note.text, note.code]]
    result.notes, result.note_codes = [], []
    result.add_notes(*new)
    if result.ops.note_code == PART and result.ops.note is not None:
        result.add_notes(Note(PART, result.ops.note))
    _summary(result, before)
    return result


def _less(late: Any, early: Any) -> Any:
    """A figure of both; None where it is unknown at the end."""
    return None if late is None else late - (early or 0)


def _less_each(late: dict[Any, Any], early: dict[Any, Any]) -> dict[Any, Any]:
    """Of counters, those that moved."""
    moved = {name: value - early.get(name, 0) for name, value in late.items()}
    return {name: value for name, value in moved.items() if value}


def _subtract(late: Any, early: Any, *names: str) -> None:
    for name in names:
        setattr(late, name, _less(getattr(late, name), getattr(early, name)))


def _by(records: Sequence[Record], key: Callable[[Record], Hashable]) -> dict[Hashable, Record]:
    return {key(record): record for record in records}


# --- Graphs and kernels -------------------------------------------------------------------------


def _graph(graph: GraphRecord, early: GraphRecord | None) -> bool:
    """Take off what was before; is anything left of it?"""
    if early is None:
        return True
    _subtract(graph, early, "calls", "backward_calls", "forward_time_us", "backward_time_us")
    _subtract(graph, early, "forward_gpu_us", "backward_gpu_us")
    graph.longest_call_us = graph.longest_backward_us = None
    graph.compile_s = {}
    graph.inductor_metrics = _less_each(graph.inductor_metrics, early.inductor_metrics)
    graph.counters = {
        group: _less_each(counters, early.counters.get(group, {}))
        for group, counters in graph.counters.items()
    }
    return bool(graph.calls or graph.backward_calls)


def _kernels(
    result: Report, before: Report, kept: set[int | None], old: set[int | None]
) -> dict[int, int]:
    """Where each of the kernels that are kept has gone."""
    places = {}
    kernels: list[KernelRecord] = []
    for place, kernel in enumerate(result.kernels):
        if kernel.graph not in kept:
            continue
        if kernel.graph in old:  # its launches are those of the whole run
            kernel.device_calls = kernel.device_time_us = kernel.device_time_total_us = None
            kernel.gb_per_s = kernel.peak_pct = None
            kernel.library_kernels = {}
        places[place] = len(kernels)
        kernels.append(kernel)
    result.kernels = kernels
    return places


# --- Ops ----------------------------------------------------------------------------------------


def _ops(early: OpsRecord, late: OpsRecord) -> OpsRecord:
    result = copy.deepcopy(late)
    captured = CapturedRecord(estimated=late.captured.estimated)
    for name in ("ops", "forward_ops", "backward_ops", "time_us"):
        setattr(captured, name, _less(getattr(late.captured, name), getattr(early.captured, name)))
    result.captured = captured
    _subtract(result, early, "total_ops", "total_time_us")
    result.device = None  # windows of device time tell of the whole run
    result.unaccounted_s = _less(late.unaccounted_s, early.unaccounted_s)
    if late.status != "exact":
        result.pct_ops_spread = result.pct_time_spread = None
        result.note = (
            "how far a part is from the sampled figures is not known: INSTRUMENTED_OPS=always"
        )
        result.note_code = PART
    result.eager = _eager(result.eager, early.eager, lambda record: record.op)
    result.missing = _eager(
        result.missing, early.missing, lambda record: (record.op, record.file, record.line)
    )
    eager_us = sum(record.time_us for record in result.eager) or 1.0
    records: list[EagerOpRecord | MissingRecord] = [*result.eager, *result.missing]
    for record in records:
        record.share_pct = 100 * record.time_us / eager_us
        record.op_time_pct = result.pct_of_op_time(record.time_us)
    return result


def _eager(late: list[Any], early: list[Any], key: Callable[[Any], Hashable]) -> list[Any]:
    known = _by(early, key)
    for record in late:
        if (other := known.get(key(record))) is not None:
            _subtract(record, other, "count", "time_us")
            if record.count_spread is not None:
                record.count_spread += other.count_spread or 0.0
    kept = [record for record in late if record.count > 0]
    return sorted(kept, key=lambda record: -record.time_us)


# --- Causes -------------------------------------------------------------------------------------


def _breaks(result: Report, before: Report) -> dict[int, int]:
    def key(record: Any) -> Hashable:
        return record.reason, record.file, record.line

    known, places = _by(before.breaks, key), {}
    kept: list[BreakRecord] = []
    for place, record in enumerate(result.breaks):
        if (other := known.get(key(record))) is not None:
            _subtract(record, other, "count", "eager_ops", "eager_time_us")
            record.skipped = [one for one in record.skipped if one not in other.skipped]
        if other is None or record.count or record.eager_ops:
            places[place] = len(kept)
            kept.append(record)
    result.breaks = kept
    return places


def _recompiles(result: Report, before: Report) -> dict[int, int]:
    def key(record: Any) -> Hashable:
        return record.function, record.file, record.line, record.compiled

    known, places = _by(before.recompiles, key), {}
    kept: list[RecompileRecord] = []
    for place, record in enumerate(result.recompiles):
        if (other := known.get(key(record))) is not None:
            _subtract(record, other, "count", "compile_s", "limit_hits", "limit_raised")
            _subtract(record, other, "guards_left_out")
            guards = _by(other.guards, lambda guard: (guard.kind, guard.subject))
            for guard in record.guards:
                if (failed := guards.get((guard.kind, guard.subject))) is not None:
                    guard.count -= failed.count
            record.guards = [guard for guard in record.guards if guard.count]
        if other is None or record.count or record.limit_hits:
            places[place] = len(kept)
            kept.append(record)
    result.recompiles = kept
    return places


# --- Sections -----------------------------------------------------------------------------------


def _compile(early: CompileSection, late: CompileSection) -> CompileSection:
    result = copy.deepcopy(late)
    _subtract(result, early, "total_s", "count", "forward_s", "backward_s", "first_s", "later_s")
    _subtract(result, early, "run_time_s")
    result.phases = _less_each(late.phases, early.phases)
    result.compilations = result.compilations[len(early.compilations) :]
    if early.cudagraphs.were_tried:
        section = CudaGraphsSection(reason_codes=late.cudagraphs.reason_codes)
        section.recorded = late.cudagraphs.recorded - early.cudagraphs.recorded
        section.replayed = late.cudagraphs.replayed - early.cudagraphs.replayed
        for name in ("re_recorded", "skipped"):
            moved = _less_each(getattr(late.cudagraphs, name), getattr(early.cudagraphs, name))
            setattr(section, name, moved)
        result.cudagraphs = section
    return result


def _caches(
    early: CachesSection,
    late: CachesSection,
    graphs: list[GraphRecord],
    old: dict[int | None, GraphRecord],
) -> CachesSection:
    new = [graph for graph in graphs if graph.graph not in old]
    states = Counter(graph.cache for graph in new)
    result = copy.deepcopy(late)
    result.graphs = CacheStates(*(states[name] for name in ("hit", "miss", "bypass", "off")))
    result.bypass_reasons = _less_each(late.bypass_reasons, early.bypass_reasons)
    result.aot_autograd = _less_each(late.aot_autograd, early.aot_autograd)
    for section, other in (
        (result.fx_graph, early.fx_graph),
        (result.code, early.code),
        (result.autotune, early.autotune),
    ):
        _subtract(section, other, *(one.name for one in dataclasses.fields(section)))
    _subtract(result, early, "saved_s")
    return result


def _counters(early: CountersSection, late: CountersSection) -> CountersSection:
    def groups(name: str) -> dict[str, dict[str, int]]:
        known = getattr(early, name)
        found = {
            group: _less_each(counters, known.get(group, {}))
            for group, counters in getattr(late, name).items()
        }
        return {group: counters for group, counters in found.items() if counters}

    return CountersSection(
        inductor_metrics=_less_each(late.inductor_metrics, early.inductor_metrics),
        graphs=groups("graphs"),
        outside_inductor_metrics=_less_each(
            late.outside_inductor_metrics, early.outside_inductor_metrics
        ),
        outside_graphs=groups("outside_graphs"),
    )


def _ledger(early: LedgerSection, late: LedgerSection) -> LedgerSection:
    result = copy.deepcopy(late)
    result.wall_s = _less(late.wall_s, early.wall_s)
    known = {(row.row, row.threads): row for row in early.rows}
    for row in result.rows:
        if (other := known.get((row.row, row.threads))) is not None:
            _subtract(row, other, "seconds")
            if row.spread_s is not None:
                both = row.spread_s + (other.spread_s or 0.0)
                row.spread_s = both if result.wall_s is None else min(both, result.wall_s)
        share = row.threads == "main" and result.wall_s and row.seconds is not None
        row.share_pct = 100 * row.seconds / result.wall_s if share else None  # type: ignore[operator]
    return result


def _gpu(before: Report, after: Report) -> GpuSection:
    early, late = before.gpu, after.gpu
    result = copy.deepcopy(late)
    unseen = early.timeline_s is not None and not early.gpus
    before_s = _run_s(before.ledger) if early.timeline_s is None else early.timeline_s
    result.timeline_s = timeline_s = _less(late.timeline_s, before_s)
    if unseen and late.gpus:  # theirs are of before, too, and nobody knows how much
        result.gpus = []
        result.note = "no window had seen a call of a graph on a GPU before this part"
        result.note_code = GPU_UNKNOWN
    known = {gpu.device: gpu for gpu in early.gpus}
    for gpu in result.gpus:
        other = known.get(gpu.device)
        spread_s = _spread_s(gpu, late)
        if other is not None:
            _subtract(gpu, other, "captured_s", "eager_s", "idle_s")
            spread_s += _spread_s(other, early)
        elif timeline_s is not None:  # no graph was called on it before
            left_s = gpu.eager_s + gpu.idle_s
            share = max(0.0, timeline_s - gpu.captured_s) / left_s if left_s else 0.0
            gpu.eager_s, gpu.idle_s = gpu.eager_s * share, gpu.idle_s * share
        gpu.spread_pct = min(100.0, 100 * spread_s / timeline_s) if timeline_s else 0.0
        gpu.captured_pct = _percent(gpu.captured_s, timeline_s)
        gpu.eager_pct = _percent(gpu.eager_s, timeline_s)
        gpu.idle_pct = _percent(gpu.idle_s, timeline_s)
    return result


def _run_s(ledger: LedgerSection) -> float:
    """Since the first ``torch.compile``, compilations apart: a GPU's timeline has that."""
    rows = (row for row in ledger.rows if row.threads == "main")
    return sum(row.seconds or 0.0 for row in rows if row.row not in ("startup", "compile"))


def _spread_s(gpu: GpuRow, section: GpuSection) -> float:
    return gpu.spread_pct / 100 * (section.timeline_s or 0.0)


def _compiled(result: Report, before: Report) -> None:
    known = {record.compiled: record for record in before.compiled}
    kept = []
    for record in result.compiled:
        other = known.get(record.compiled)
        if other is not None:
            _subtract(record, other, "calls", "graph_calls", "eager_calls", "captured_ops")
            _subtract(record, other, "limit_hits")
            record.pct_ops = record.pct_time = None
        if other is None or record.calls or record.graph_calls:
            kept.append(record)
    result.compiled = kept


def _lines(
    result: Report,
    before: Report,
    breaks: dict[int, int],
    recompiles: dict[int, int],
    kernels: dict[int, int],
) -> None:
    known = {(line.file, line.line): line for line in before.lines}
    graphs = {graph.graph for graph in result.graphs}
    kept: list[LineRecord] = []
    for line in result.lines:
        line.breaks = [breaks[place] for place in line.breaks if place in breaks]
        line.guards = [recompiles[place] for place in line.guards if place in recompiles]
        line.kernels = [kernels[place] for place in line.kernels if place in kernels]
        line.graphs = [graph for graph in line.graphs if graph in graphs]
        if (other := known.get((line.file, line.line))) is not None:
            _subtract(line, other, "captured_ops", "forward_ops", "backward_ops", "eager_ops")
            _subtract(line, other, "eager_time_us", "recompiles", "recompile_s", "device_time_us")
            _subtract(line, other, "eager_gpu_us")
            if line.eager_ops_spread is not None:
                line.eager_ops_spread += other.eager_ops_spread or 0.0
        figures = line.captured_ops, line.eager_ops, line.eager_time_us, line.recompiles
        if any(figures) or line.breaks or line.guards or line.graphs:
            kept.append(line)
    result.lines = sorted(kept, key=lambda line: -(line.eager_time_us or 0.0))
    files = {line.file for line in kept}
    result.files = [file for file in result.files if file.file in files]


def _summary(result: Report, before: Report) -> None:
    summary, ops = result.summary, result.ops
    summary.graphs = len(result.graphs)
    summary.graph_breaks = sum(record.kind != GAVE_UP for record in result.breaks)
    summary.skipped_functions = sum(len(record.skipped) for record in result.breaks)
    summary.graph_ops = sum(graph.ops or 0 for graph in result.graphs)
    _subtract(summary, before.summary, "graph_calls", "backward_calls", "recompiles")
    summary.captured_ops, summary.total_ops = ops.captured.ops, ops.total_ops
    summary.pct_ops = _percent(ops.captured.ops, ops.total_ops)
    summary.pct_time = _percent(ops.captured.time_us, ops.total_time_us)


def _percent(some: float | None, whole: float | None) -> float | None:
    return None if some is None or not whole else 100 * (some / whole)
