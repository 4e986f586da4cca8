"""Listens to torch's structured trace log: compilations, breaks, recompiles, cache bypasses."""

import json
import logging
import threading
from collections.abc import Callable
from typing import Any

from instrumented_backend.observe.failures import Failures
from instrumented_backend.observe.graphs import ObservedGraph
from instrumented_backend.observe.reasons import break_reason, last_sentence
from instrumented_backend.records import BreakRecord, CompileRecord, RecompileRecord

# Of all that torch reports, only these are asked for; but where somebody else listens too
# (TORCH_TRACE), every event comes here.
EVENTS = frozenset({"compilation_metrics", "bwd_compilation_metrics"})
ARTIFACTS = frozenset(
    {"dynamo_graph_break_reason", "fx_graph_cache_bypass", "aotautograd_cache_bypass"}
)
MAX_COMPILATIONS = 10_000
MAX_BREAKS = 1_000

# CompilationMetrics' own figures, each inside the one before it: (phase, field in microseconds).
_PHASES = {
    "forward": (
        ("dynamo", "dynamo_cumulative_compile_time_us"),
        ("aot_autograd", "aot_autograd_cumulative_compile_time_us"),
        ("inductor", "inductor_cumulative_compile_time_us"),
        ("codegen", "inductor_code_gen_cumulative_compile_time_us"),
        ("kernel_compile", "triton_compile_time_us"),
    ),
    "backward": (
        ("aot_autograd", "backward_cumulative_compile_time_us"),
        ("inductor", "inductor_cumulative_compile_time_us"),
        ("codegen", "inductor_code_gen_cumulative_compile_time_us"),
        ("kernel_compile", "triton_compile_time_us"),
    ),
}


def exclusive_phases(metrics: dict[str, Any], direction: str) -> dict[str, float | None]:
    """Seconds spent in each phase and in none inside it; together they are the whole.

    A phase that did not run is 0, and what it would have enclosed counts as enclosed by the next
    one out: kernels loaded on a cache hit take their time from ``aot_autograd``. One that reports
    less than what it encloses is None: torch's figures then overlap, and neither can be trusted.
    """
    seconds: dict[str, float | None] = {f"{phase}_s": 0.0 for phase, _ in _PHASES[direction]}
    enclosing: tuple[str, float] | None = None
    for phase, field in _PHASES[direction]:
        inclusive = (metrics.get(field) or 0) / 1e6
        if not inclusive:
            continue
        if enclosing is not None:
            outer, outer_s = enclosing
            seconds[outer] = outer_s - inclusive if outer_s >= inclusive else None
        enclosing = f"{phase}_s", inclusive
        seconds[f"{phase}_s"] = inclusive
    return seconds


class CompileLog(logging.Handler):
    """A handler on the trace log that keeps records; attach with `listen_to_trace_log`."""

    def __init__(
        self, failures: Failures, backward_finished: Callable[[ObservedGraph], None]
    ) -> None:
        """``backward_finished`` is called when the last work on a lazy backward is done."""
        super().__init__(logging.DEBUG)
        self._failures = failures
        self._backward_finished = backward_finished
        self._compiling: dict[str, list[ObservedGraph]] = {}  # compile id → its graphs so far
        self._thread = threading.local()
        self.clear()

    def clear(self) -> None:
        self.compilations: list[CompileRecord] = []
        self.recompiles: list[RecompileRecord] = []
        self.breaks: dict[tuple[Any, ...], BreakRecord] = {}
        self.dropped = 0
        self._compiling.clear()

    def graph_opened(self, graph: ObservedGraph) -> None:
        """The backend was called for ``graph``; its compilation's figures will follow."""
        self._compiling.setdefault(graph.record.compile_id, []).append(graph)
        self._thread.graph = graph

    def code_compiled(self, graph: ObservedGraph) -> None:
        """Inductor compiled for ``graph`` on this thread; a lazy backward's figures may follow."""
        self._thread.graph = graph

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

    def _artifact(self, name: str, payload: str) -> None:
        if name == "dynamo_graph_break_reason":
            found = break_reason(payload)
            self._add_break("break", found.reason, found.file, found.line, found.function)
        elif name.endswith("_cache_bypass"):
            graph: ObservedGraph | None = getattr(self._thread, "graph", None)
            if graph is not None:
                bypass = json.loads(payload)
                graph.record.cache_reason = str(bypass.get("cache_bypass_reason"))

    def _compilation(self, metrics: dict[str, Any]) -> None:
        compile_id = str(metrics["compile_id"])
        graphs = self._compiling.pop(compile_id, [])
        function, file, line = (
            metrics.get(name) for name in ("co_name", "co_filename", "co_firstlineno")
        )
        if metrics.get("has_guarded_code"):
            outcome = "compiled"
        elif metrics.get("fail_type") in (None, "Unsupported", "SkipFrame"):
            outcome = "skipped"
        else:
            outcome = "failed"
        record = self._add_compilation(
            metrics, compile_id, "forward", outcome, graphs, function, file, line
        )
        for graph in graphs:
            graph.record.function = function or graph.record.function
            graph.record.file = file or graph.record.file
            graph.record.line = line or graph.record.line
        if len(graphs) == 1:
            graphs[0].record.compile_s.update(record.phases_s)
        if outcome != "compiled" and metrics.get("fail_reason"):
            reason = last_sentence(metrics["fail_reason"])
            self._add_break("skipped", reason, file, line, function)
        if metrics.get("recompile_reason") and len(self.recompiles) < MAX_COMPILATIONS:
            reason = metrics["recompile_reason"]
            self.recompiles.append(RecompileRecord(compile_id, function, file, line, reason))

    def _lazy_backward(self, metrics: dict[str, Any]) -> None:
        graph: ObservedGraph | None = getattr(self._thread, "graph", None)
        graphs = [] if graph is None else [graph]
        place = (
            (None, None, None)
            if graph is None
            else (graph.record.function, graph.record.file, graph.record.line)
        )
        record = self._add_compilation(
            metrics, str(metrics["compile_id"]), "backward", "compiled", graphs, *place
        )
        if graph is not None:
            graph.record.compile_s.update(
                {f"backward_{phase}": seconds for phase, seconds in record.phases_s.items()}
            )
            self._backward_finished(graph)

    def _add_compilation(
        self,
        metrics: dict[str, Any],
        compile_id: str,
        direction: str,
        outcome: str,
        graphs: list[ObservedGraph],
        function: str | None,
        file: str | None,
        line: int | None,
    ) -> CompileRecord:
        total_us = metrics.get("duration_us")
        record = CompileRecord(
            compile_id=compile_id,
            direction=direction,
            function=function,
            file=file,
            line=line,
            outcome=outcome,
            graphs=[graph.record.graph for graph in graphs],
            phases_s=exclusive_phases(metrics, direction),
            total_s=None if total_us is None else total_us / 1e6,
        )
        if len(self.compilations) < MAX_COMPILATIONS:
            self.compilations.append(record)
        else:
            self.dropped += 1
        return record

    def _add_break(
        self, kind: str, reason: str, file: str | None, line: int | None, function: str | None
    ) -> None:
        key = (kind, reason, file, line)
        known = self.breaks.get(key)
        if known is None and len(self.breaks) < MAX_BREAKS:
            known = self.breaks[key] = BreakRecord(kind, reason, file, line, function)
        if known is not None:
            known.count += 1
