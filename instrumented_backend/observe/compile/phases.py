"""Wall time of each phase of a compilation, from the spans that torch itself marks.

Torch marks the start and the end of its compiler's steps, nested, on the thread that does them.
Each moment belongs to the innermost step, and so to one phase: phases are exclusive, and add up to
the whole by construction.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

# In the order of a compilation.
PHASES = (
    "dynamo",  # bytecode to FX graph, guards
    "aot_autograd",  # joint graph, functionalization, partition; a look-up in its cache
    "passes",  # Inductor's passes over the FX graph
    "lowering",  # FX graph to Inductor's own nodes; a look-up in the FX graph cache
    "scheduling",  # fusion
    "codegen",  # kernels and wrapper as source
    "kernel_compile",  # g++, Triton: as far as the compilation waits for them
    "load",  # generated modules; what a cache has
    "autotune",
    "cudagraphs",  # recording
)

# Steps that begin a phase; others, such as Inductor's passes, belong to the step around them.
_STEPS = {
    "dynamo": "dynamo",
    "backend_compile": "aot_autograd",
    "create_aot_dispatcher_function": "aot_autograd",
    "min_cut_rematerialization_partition": "aot_autograd",
    "entire_backward_compile": "aot_autograd",
    "_recursive_pre_grad_passes": "passes",
    "_recursive_joint_graph_passes": "passes",
    "_recursive_post_grad_passes": "passes",
    "inductor_compile": "lowering",
    "compile_fx.<locals>.fw_compiler_base": "lowering",
    "compile_fx.<locals>.bw_compiler": "lowering",
    "GraphLowering.run": "lowering",
    "GraphLowering.compile_to_fn": "codegen",
    "code_gen": "codegen",
    "Scheduler.__init__": "scheduling",
    "Scheduler.codegen": "codegen",
    "compile_file": "kernel_compile",
    "async_compile.precompile": "kernel_compile",
    "async_compile.wait": "kernel_compile",
    "reload_kernel_in_parent": "kernel_compile",
    "CachingAutotuner.slow_precompile_config": "kernel_compile",
    "AotCodeCompiler.compile": "kernel_compile",
    "PyCodeCache.load_by_key_path": "load",
    "AOTAutogradCache.inductor_load": "load",
    "inductor_codecache_torch_key": "load",
    "CacheBase.get_system.triton_key": "load",
    "TritonBundler.read_and_emit": "load",
    "benchmark_fused_nodes": "autotune",
    "CachingAutotuner.benchmark_all_configs": "autotune",
    "CachingAutotuner.coordinate_descent_tuning": "autotune",
    "CachingAutotuner.combo_sequential_autotune": "autotune",
    "cudagraphify.get_container": "cudagraphs",
    "CUDAGraphNode.record": "cudagraphs",
}
_STEP_ENDINGS = {
    "_template_precompiling": "kernel_compile",
    "_template_autotuning": "autotune",
}
_COMPILATION = "dynamo"  # the step round a compilation, also where that runs inside another one
_BACKWARD = "entire_backward_compile"
_AT_RUN_TIME = ("autotune", "cudagraphs")
_COUNTED = frozenset({"compile_file", "CachingAutotuner.benchmark_all_configs"})
_DEEPEST = 20  # compilations inside compilations; beyond that something was left open


def phase_of(step: str) -> str | None:
    """The phase that a step of torch begins; None for one that is part of the phase around it."""
    phase = _STEPS.get(step)
    if phase is None:
        for ending, of_ending in _STEP_ENDINGS.items():
            if step.endswith(ending):
                return of_ending
    return phase


@dataclass
class Span:
    """One compilation on its thread, or what torch compiles, tunes, records at run time.

    ``seconds`` has every phase that took any time; it is complete once ``total_s`` is not None.
    """

    at_run_time: bool = False
    compile_id: str | None = None
    backward: bool = False
    seconds: dict[str, float] = field(default_factory=dict)
    total_s: float | None = None
    finished: Callable[["Span"], None] | None = None  # called when it is complete


@dataclass
class _Step:
    name: str
    phase: str
    start_s: float
    inner_s: float = 0.0  # in steps inside it


class PhaseClock:
    """Takes torch's marks in, on any thread; the thread that compiles can ask for its span."""

    def __init__(
        self, at_run_time: Callable[[Span], None], clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """``at_run_time`` is given what is tuned or recorded outside a compilation."""
        self._at_run_time = at_run_time
        self._clock = clock
        self._thread = threading.local()
        self.counts: Counter[str] = Counter()  # of the steps worth counting, on all threads

    def mark(self, event: dict[str, Any]) -> None:
        """One of torch's trace events: ``ph`` is ``B`` for the start of ``name``, ``E`` its end."""
        kind = event.get("ph")
        if kind == "B":
            if event["name"] in _COUNTED:
                self.counts[event["name"]] += 1
            self._begin(event["name"], event.get("args") or {})
        elif kind == "E":
            self._end(event["name"])

    def span(self) -> Span | None:
        """The compilation under way on this thread, else the last one that ended here."""
        opened = self._open()
        return opened[-1][0] if opened else getattr(self._thread, "last", None)

    def _open(self) -> list[tuple[Span, list[_Step]]]:
        opened: list[tuple[Span, list[_Step]]] | None = getattr(self._thread, "open", None)
        if opened is None:
            opened = self._thread.open = []
        return opened

    def _begin(self, name: str, arguments: dict[str, Any]) -> None:
        opened = self._open()
        phase = phase_of(name)
        if opened and name != _COMPILATION:
            steps = opened[-1][1]
            steps.append(_Step(name, phase or steps[-1].phase, self._clock()))
            return
        at_run_time = phase in _AT_RUN_TIME
        if phase is None or not (at_run_time or name in (_COMPILATION, _BACKWARD)):
            return  # a thread that helps one that waits for it
        if len(opened) >= _DEEPEST:
            opened.clear()
        span = Span(at_run_time, arguments.get("compile_id"), bool(arguments.get("is_backward")))
        opened.append((span, [_Step(name, phase, self._clock())]))

    def _end(self, name: str) -> None:
        opened = self._open()
        if not opened or all(step.name != name for step in opened[-1][1]):
            return
        now = self._clock()
        span, steps = opened[-1]
        while steps:
            step = steps.pop()
            took = now - step.start_s
            own = span.seconds.get(step.phase, 0.0) + took - step.inner_s
            span.seconds[step.phase] = own
            if steps:
                steps[-1].inner_s += took
            elif len(opened) > 1:
                opened[-2][1][-1].inner_s += took
            if step.name == name:
                break
        if not steps:
            opened.pop()
            self._finish(span)

    def _finish(self, span: Span) -> None:
        span.total_s = sum(span.seconds.values())
        if span.at_run_time:
            self._at_run_time(span)
        else:
            self._thread.last = span
        if span.finished is not None:
            span.finished(span)
