"""Listens to torch's structured trace log: compilations, breaks, recompiles, cache look-ups."""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from instrumented_backend.observe.compile.breaks import BreakLog
from instrumented_backend.observe.compile.caches import CacheLog
from instrumented_backend.observe.compile.compiled import CompiledLog, Function
from instrumented_backend.observe.compile.endings import (
    Failure,
    compiled_function,
    failure_of,
    is_refusal,
    outcome_of,
    raises_at_limit,
)
from instrumented_backend.observe.compile.live import LiveLog
from instrumented_backend.observe.compile.outcomes import cause_of
from instrumented_backend.observe.compile.phases import PhaseClock, Span
from instrumented_backend.observe.compile.recompiles import (
    Recompilation,
    RecompileLog,
    guard_place,
)
from instrumented_backend.observe.compile.stall import Stall
from instrumented_backend.observe.compile.totals import Totals, is_first, seconds_by_phase
from instrumented_backend.observe.failures import Failures
from instrumented_backend.observe.graphs.graph import ObservedGraph
from instrumented_backend.observe.messages.guards import FailedGuard, failed_guard
from instrumented_backend.observe.messages.reasons import break_reason, is_repetition
from instrumented_backend.observe.observer import Observer
from instrumented_backend.records import CompileRecord, notes
from instrumented_backend.records.functions import resumed
from instrumented_backend.torch_compat import dynamo, trace_log

# Of all that torch reports, only these are asked for; but where somebody else listens too
# (TORCH_TRACE), every event comes here.
EVENTS = frozenset({"compilation_metrics", "bwd_compilation_metrics"})
ARTIFACTS = frozenset(
    {
        "dynamo_graph_break_reason",
        "recompile_reasons",
        "fx_graph_cache_bypass",
        "aotautograd_cache_bypass",
        "triton_kernel_info",
    }
)
MAX_COMPILATIONS = 10_000


class CompileLog(logging.Handler, Observer):
    """A handler on the trace log that keeps records."""

    def __init__(
        self,
        failures: Failures,
        backward_finished: Callable[[ObservedGraph], None],
        compiled: CompiledLog,
        changed: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """``backward_finished`` is called when the last work on a lazy backward is done.

        ``changed`` is called when a compilation has begun, and when it has ended.
        """
        super().__init__(logging.DEBUG)
        self._failures = failures
        self._backward_finished = backward_finished
        self._compiled_functions = compiled
        self._compiling: dict[str, list[ObservedGraph]] = {}  # compile id → its graphs so far
        self._thread = threading.local()
        self._clock = PhaseClock(self._at_run_time, clock)
        self.caches = CacheLog()
        self.breaks = BreakLog()
        self.recompiles = RecompileLog()
        self.live = LiveLog(changed, self._place, clock)
        self._stall = Stall()
        self._listening = False
        self.reset()

    def start(self) -> None:
        if not self._listening:
            self._listening = True
            trace_log.listen(self, EVENTS, ARTIFACTS, self.timed)

    def reset(self) -> None:
        self.compilations: list[CompileRecord] = []
        self.totals = Totals()
        self._run_time: dict[tuple[str, str], CompileRecord] = {}
        self._compiled: dict[str, tuple[Function, list[int | None]]] = {}  # by compile id
        self._recompiled: dict[str, Recompilation] = {}  # compile id → whose seconds are to come
        self._clock.counts.clear()
        self.caches.clear()
        self.breaks.clear()
        self.recompiles.clear()
        self._stall.clear()
        self.dropped = 0
        self._compiling.clear()

    def after_fork(self) -> None:
        self.live.clear()

    def graph_opened(self, graph: ObservedGraph) -> None:
        """The backend was called for ``graph``; its compilation's figures will follow."""
        self._compiling.setdefault(graph.record.compile_id, []).append(graph)
        self._thread.graph = graph
        if not trace_log.revive():
            self._failures.note(
                notes.NOT_WATCHED,
                "logging.disable is in force: compile times, breaks, recompiles are unknown",
            )

    def code_compiled(self, graph: ObservedGraph) -> None:
        """Inductor compiled for ``graph`` on this thread; a lazy backward's figures may follow."""
        self._thread.graph = graph

    def compiling_s(self) -> float:
        """Seconds that compilations took, the ones under way too."""
        now = time.time()
        under_way = (now - one.since_at for one in self.live.compiling())
        return self.totals.total_s + sum(under_way)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Keep the log as it is while several things are read that belong together."""
        self.acquire()
        try:
            yield
        finally:
            self.release()

    @property
    def steps(self) -> Mapping[str, int]:
        """How often torch did each step that is counted."""
        return dict(self._clock.counts)

    def emit(self, record: logging.LogRecord) -> None:
        with self._failures.guard("compile log"):
            metadata: dict[str, Any] = record.metadata  # type: ignore[attr-defined]
            if "compilation_metrics" in metadata:
                self._compilation(metadata["compilation_metrics"])
            elif "bwd_compilation_metrics" in metadata:
                self._lazy_backward(metadata["bwd_compilation_metrics"])
            elif "artifact" in metadata:
                payload = record.payload  # type: ignore[attr-defined]
                self._artifact(metadata["artifact"]["name"], payload)

    def timed(self, event: dict[str, Any]) -> None:
        """One of torch's marks of time."""
        with self._failures.guard("compile times"), self.reading():
            if event["ph"] == "i":
                graph: ObservedGraph | None = getattr(self._thread, "graph", None)
                found = event.get("args") or {}
                # Or the look-up is for a graph of plain Inductor.
                if graph is not None and found.get("compile_id") == graph.record.compile_id:
                    self.caches.looked_up(event["name"], found, graph.record)
                    graph.kept = None
                    self.live.looked_up(event["name"], graph.record.compile_id)
            else:
                self._clock.mark(event)
                self.live.mark(event)

    # --- Events ---------------------------------------------------------------------------------

    def _artifact(self, name: str, payload: str) -> None:
        if dynamo.compilation_under_way().others:
            return
        current = dynamo.current_compile_id()
        compile_id = None if current is None else str(current)
        if name == "dynamo_graph_break_reason":
            if not is_repetition(payload):
                found = break_reason(payload)
                if self.breaks.met(compile_id, found):
                    self.live.broke(found)
        elif name == "recompile_reasons":
            self._thread.failed_guards = guards = _failed_guards(payload)
            if not self._compiled_functions.is_first(dynamo.compilation_under_way()):
                self.live.recompiled(guards)
        elif name.endswith("_cache_bypass"):
            graph: ObservedGraph | None = getattr(self._thread, "graph", None)
            if graph is not None and compile_id in (None, graph.record.compile_id):
                bypass = json.loads(payload)
                graph.record.cache_reason = str(bypass.get("cache_bypass_reason"))
                graph.kept = None
        elif name == "triton_kernel_info":
            self.caches.compiled_triton(json.loads(payload))

    def _compilation(self, metrics: dict[str, Any]) -> None:
        compile_id = str(metrics["compile_id"])
        graphs = self._compiling.pop(compile_id, [])
        under_way = dynamo.compilation_under_way()
        if under_way.others and not graphs:
            return
        outcome = outcome_of(metrics, under_way)
        self.live.outcome(outcome)
        graphs = _kept(graphs, outcome)
        own = compiled_function(metrics, under_way)
        place: Function = under_way.wrapped or own
        for graph in graphs:
            graph.record.function = place[0] or graph.record.function
            graph.record.file = place[1] or graph.record.file
            graph.record.line = place[2] or graph.record.line
            graph.kept = None
        first = self._compiled_functions.is_first(under_way)
        failure = None if outcome == "compiled" else failure_of(metrics, outcome)
        with self._failures.guard("torch.compile"):
            if outcome == "compiled":
                self._compiled_functions.has_code(under_way)
            if graphs:
                self._compiled_functions.compiled(under_way, len(graphs))
            else:
                self._not_compiled(compile_id, under_way, place, failure or Failure())
        if failure is None:
            numbers = [graph.record.graph for graph in graphs]
            self.breaks.compiled(compile_id, own[0], own[1], numbers)
        elif failure.message:
            self.breaks.gave_up(compile_id, failure.message, *place, failure.at, failure.raises)
        else:
            self.breaks.ended(compile_id)
        guards: list[FailedGuard] | None = getattr(self._thread, "failed_guards", None)
        recompiled = self._recompilation(metrics, compile_id, place, under_way, first)
        record = self._new_record(metrics, compile_id, "forward", outcome, graphs)
        record.function, record.file, record.line = place
        record.call = self._compiled_functions.call(under_way)
        if recompiled is not None:
            guard = (guards or [failed_guard(metrics["recompile_reason"], None)])[0]
            record.guard = guard.words
            record.guard_file, record.guard_line = guard_place(guard, place[1])
        if graphs and len(self._compiled) < MAX_COMPILATIONS:
            self._compiled[compile_id] = place, record.graphs

        def finished() -> None:
            if len(graphs) == 1:
                graphs[0].record.compile_s.update(record.phases_s)
                graphs[0].kept = None
            if recompiled is not None:
                recompiled.took(record.total_s or 0.0)

        self._finish(record, finished, first)

    def _not_compiled(
        self,
        compile_id: str,
        under_way: dynamo.CompilationUnderWay,
        place: Function,
        failure: Failure,
    ) -> None:
        met = self.breaks.last_met(compile_id)
        cause = cause_of(place, met, failure.message, failure.at, failure.refused)
        self._compiled_functions.not_compiled(under_way, cause, failure.raises)

    def _recompilation(
        self,
        metrics: dict[str, Any],
        compile_id: str,
        place: Function,
        under_way: dynamo.CompilationUnderWay,
        first: bool,
    ) -> Recompilation | None:
        """None for the ``first`` compilation of a module, whatever Dynamo calls it."""
        reason = metrics.get("recompile_reason")
        if not reason:
            return None
        known: list[FailedGuard] | None = getattr(self._thread, "failed_guards", None)
        self._thread.failed_guards = None
        if first and not is_refusal(metrics):
            return None
        guards = known or [failed_guard(reason, None)]
        refused = is_refusal(metrics)
        raised = raises_at_limit(metrics)
        recompilation = self.recompiles.add(
            compile_id,
            place,
            reason,
            guards,
            refused,
            raised,
            self._compiled_functions.number(under_way),
            is_shared=under_way.wrapped is not None,
        )
        if recompilation is not None and len(self._recompiled) < MAX_COMPILATIONS:
            self._recompiled[compile_id] = recompilation
        return recompilation

    def _lazy_backward(self, metrics: dict[str, Any]) -> None:
        graph: ObservedGraph | None = getattr(self._thread, "graph", None)
        compile_id = str(metrics["compile_id"])
        if graph is not None and graph.record.compile_id != compile_id:
            return  # that of a graph of plain Inductor
        graphs = [] if graph is None else [graph]
        record = self._new_record(metrics, compile_id, "backward", "compiled", graphs)
        if graph is not None:
            record.function, record.file = graph.record.function, graph.record.file
            record.line = graph.record.line
            self._backward_finished(graph)

        def finished() -> None:
            if graph is not None:
                graph.record.compile_s.update(
                    {f"backward_{phase}": seconds for phase, seconds in record.phases_s.items()}
                )
                graph.kept = None
            recompiled = self._recompiled.get(compile_id)
            if recompiled is not None:
                recompiled.took(record.total_s or 0.0)

        self._finish(record, finished)

    def _place(self, compile_id: str | None, backward: bool) -> Function | None:
        """The function of a compilation that begins on this thread; None: for somebody else."""
        if backward:  # later than its forward
            known = self._compiled.get(str(compile_id))
            return None if known is None else known[0]
        under_way = dynamo.compilation_under_way()
        code = under_way.code
        if under_way.others or code is None:
            return None
        return under_way.wrapped or (code.co_name, code.co_filename, code.co_firstlineno)

    # --- Times ----------------------------------------------------------------------------------

    def _new_record(
        self,
        metrics: dict[str, Any],
        compile_id: str,
        direction: str,
        outcome: str,
        graphs: list[ObservedGraph],
    ) -> CompileRecord:
        total_us, started_us = metrics.get("duration_us"), metrics.get("start_time_us")
        record = CompileRecord(
            compile_id=compile_id,
            direction=direction,
            function=None,
            file=None,
            line=None,
            outcome=outcome,
            graphs=[graph.record.graph for graph in graphs],
            phases_s={},
            total_s=None if total_us is None else total_us / 1e6,
            started_at=None if started_us is None else started_us / 1e6,
        )
        self._keep(record)
        return record

    def _keep(self, record: CompileRecord) -> None:
        if len(self.compilations) < MAX_COMPILATIONS:
            self.compilations.append(record)
        else:
            self.dropped += 1

    def _finish(
        self, record: CompileRecord, finished: Callable[[], None], first: bool = False
    ) -> None:
        """Complete the record now, or when its compilation ends: torch reports before that."""
        totals = self.totals

        def complete(span: Span) -> None:
            record.phases_s = seconds_by_phase(span)
            record.total_s = span.total_s
            totals.add(record, first)
            finished()
            self.live.finished(record)
            if not is_first(record, first):
                known = self._recompiled.get(record.compile_id)
                again = None if known is None else known.record
                self._stall.recompiled(record.total_s or 0.0, again)

        span = self._clock.span()
        if span is None or span.finished is not None:
            # Its marks did not come: torch's own total is all there is.
            totals.add(record, first)
            finished()
        elif span.total_s is None:
            span.finished = complete
        else:
            span.finished = complete  # or a second record would take the same span
            complete(span)

    def _at_run_time(self, span: Span) -> None:
        """Kernels were tuned, or CUDA graphs recorded, while the program ran."""
        compile_id = span.compile_id or "?"
        direction = "backward" if span.backward else "forward"
        record = self._run_time.get((compile_id, direction))
        if record is None:
            place, graphs = self._compiled.get(compile_id, ((None, None, None), []))
            record = CompileRecord(compile_id, direction, *place, "run time", list(graphs), {}, 0.0)
            if len(self._run_time) < MAX_COMPILATIONS:
                self._run_time[compile_id, direction] = record
                self._keep(record)
        seconds = seconds_by_phase(span)
        record.phases_s = {
            phase: (record.phases_s.get(phase) or 0.0) + (more or 0.0)
            for phase, more in seconds.items()
        }
        record.total_s = (record.total_s or 0.0) + (span.total_s or 0.0)
        self.totals.add_run_time(seconds)


def _kept(graphs: list[ObservedGraph], outcome: str) -> list[ObservedGraph]:
    """The graphs of a compilation's last attempt; none where it failed."""
    last = max((graph.attempt for graph in graphs), default=0)
    for graph in graphs:
        graph.discarded = outcome != "compiled" or graph.attempt < last
        graph.kept = None
    return [graph for graph in graphs if not graph.discarded]


def _failed_guards(payload: str) -> list[FailedGuard]:
    """Why a function is about to be recompiled, from the trace log's ``recompile_reasons``.

    One reason is there as it is, several as a list.
    """
    reasons = json.loads(payload) if payload.startswith("[\n") else [payload]
    frame = dynamo.recompiled_frame()
    scope = None if frame is None else (dict(frame.f_locals), frame.f_globals)
    is_resumed = frame is not None and resumed(frame.f_code.co_name)[1] is not None
    return [failed_guard(reason, scope, is_resumed) for reason in reasons]
