"""The process's one session: what is observed from the first torch.compile to the exit."""

import math
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from instrumented_backend.observe import descriptors
from instrumented_backend.observe.code.codegen import CodegenFacts
from instrumented_backend.observe.code.generated import GeneratedCode, KernelReader
from instrumented_backend.observe.code.metric_tables import MetricTables
from instrumented_backend.observe.compile.compiled import CompiledLog
from instrumented_backend.observe.compile.log import CompileLog
from instrumented_backend.observe.compile.outcomes import compiled_records
from instrumented_backend.observe.device.kernel_times import KernelTimer
from instrumented_backend.observe.exit import ExitHooks
from instrumented_backend.observe.failures import Failures
from instrumented_backend.observe.garbage import no_garbage_collection
from instrumented_backend.observe.graphs.calls import GraphCalls
from instrumented_backend.observe.graphs.counters import CounterLedger
from instrumented_backend.observe.graphs.cudagraphs import CudaGraphs
from instrumented_backend.observe.graphs.graph import ObservedGraph
from instrumented_backend.observe.job import Job
from instrumented_backend.observe.kept import Kept
from instrumented_backend.observe.ledger import process_age_s
from instrumented_backend.observe.live_file import LiveFile, Saver, has_content
from instrumented_backend.observe.native.gate import Gate
from instrumented_backend.observe.notebook import name_cells
from instrumented_backend.observe.observer import Observer
from instrumented_backend.observe.ops.meter import EXIT_PATIENCE_S, OpMeter
from instrumented_backend.observe.ops.observed import Observed
from instrumented_backend.observe.parsing import THREADS_MAY_PARSE
from instrumented_backend.observe.snapshot import Started, assemble
from instrumented_backend.observe.source_files import SourceFiles
from instrumented_backend.records import CudaGraphsSection, Report, notes
from instrumented_backend.records.ranks import Run
from instrumented_backend.records.report import ENDED, INTERRUPTED, RUNNING
from instrumented_backend.torch_compat import dynamo, fx, inductor

if TYPE_CHECKING:
    from instrumented_backend.observe.device.meter import DeviceMeter

MAX_GRAPHS = 10_000
# Of what was not parsed meanwhile, which is more where no thread may.
MAX_PARSING_AT_EXIT_S = 0.25 if THREADS_MAY_PARSE else 2.0


class _Exit(Observer):
    """The report's place among the observers: those below it stop before it is made."""

    def __init__(self, hooks: ExitHooks, failures: Failures, report: Callable[[], None]) -> None:
        self._hooks = hooks
        self._failures = failures
        self._report = report

    def start(self) -> None:
        note = self._hooks.install()
        if note:
            self._failures.note(notes.NOT_WATCHED, note)

    def stop(self) -> None:
        self._report()


class Asked(NamedTuple):
    """The signal by which a program is asked, and what is done with the answer."""

    signal: int
    tell: Callable[[Report], None]


class Session:
    """Owns the observers and turns what they keep into a `Report`."""

    def __init__(
        self,
        deliver: Callable[[Report], None],
        ops: str = "off",
        print_missing: bool = False,
        wants_kernels: bool = True,
        device_time: bool = False,
        show_ranks: Callable[[Run], None] | None = None,
        saver: Saver | None = None,
        asked: Asked | None = None,
    ) -> None:
        """``deliver`` gets the report when the process ends, if there is anything in it.

        ``saver`` gets it now and then until then; ``asked`` says who gets it on which signal.
        ``ops``, ``print_missing`` and ``device_time`` are the settings of those names;
        ``wants_kernels`` is False where ``deliver`` shows no more of the kernels than their number.
        ``show_ranks`` gets all ranks' reports, on rank 0, where no folder has them.
        """
        self._deliver = deliver
        self._wants_kernels = wants_kernels
        self._show_ranks = show_ranks
        self._lock = threading.Lock()
        self._graphs: list[ObservedGraph] = []
        self._devices: dict[str, None] = {}  # kinds, in the order of their first use
        self.failures = Failures()
        gate = Gate()
        self.ops = OpMeter(ops, self.failures, print_missing, gate)
        self._calls = GraphCalls(gate, self.failures)
        self._device: DeviceMeter | None = None
        if device_time:
            # Here, because it brings numpy along.
            from instrumented_backend.observe.device import meter as device

            self._device = device.DeviceMeter(gate, self.failures, self.ops.pause)
        self._kernel_timer = KernelTimer(self.failures) if device_time else None
        self._codegen = CodegenFacts(self.failures)
        self._reader = KernelReader(
            self.failures, wants_kernels, lambda: self.compile_log.compiling_s()
        )
        self.ledger: CounterLedger[ObservedGraph] = CounterLedger()
        self.compiled = CompiledLog(self.failures)
        self._live = LiveFile(
            saver, self.ops, self.failures, self._all_graphs, self._compilations, self._assemble
        )
        self.compile_log = CompileLog(
            self.failures,
            lambda graph: self.ledger.credit(graph.inductor_counts),
            self.compiled,
            self._live.snapshots.soon,
        )
        self._metric_tables = MetricTables(self.failures)
        self._cudagraphs = CudaGraphs(self.failures)
        self._job = Job(self.failures, gathers=show_ranks is not None)
        self._hooks = ExitHooks(self._stop, self._after_fork, asked and self._answer(asked))
        at_exit = _Exit(self._hooks, self.failures, self._deliver_last)
        # With the names that notes give them. They stop in the opposite order.
        self._observers: list[tuple[str, Observer]] = [
            ("notes", self.failures),  # of the others' failures, too
            ("the job", self._job),
            ("trace log", self.compile_log),
            ("torch.compile", self.compiled),
            ("CUDA graphs", self._cudagraphs),
            ("counters", self.ledger),
            ("graph calls", self._calls),
            ("ops", self.ops),  # stops last of those that stop: the report reads it
            ("the report", at_exit),
            ("kernels", self._reader),
            ("metric tables", self._metric_tables),
        ]
        if self._device is not None:
            self._observers.append(("device time", self._device))
        self._observers.append(("snapshots", self._live.snapshots))
        self._sources = SourceFiles()
        self._post_compile_patched = False
        self._begun = False
        self.reset()

    # --- Start and end --------------------------------------------------------------------------

    def start(self) -> None:
        """Start what needs no Inductor: when the backend is loaded, and after a fork."""
        self._each(lambda observer: observer.start())

    def begin(self) -> None:
        """The program has asked for the backend: what it did before is its start-up."""
        if not self._begun:
            self._begun = True
            self._started = Started.now(process_age_s() or 0.0)
            with self.failures.guard("source files"):
                self._sources.see_program()
            with self.failures.guard("ops"):
                self.ops.begin()

    def reset(self) -> None:
        """Start afresh: graphs compiled before come back, with no calls, once they are called."""
        with self._lock:
            for graph in self._graphs:
                graph.reset()
            self._started = Started.now()
        self._live.reset()
        self._each(lambda observer: observer.reset())

    def _after_fork(self) -> None:
        """A forked child has not compiled what its parent did; it starts with nothing."""
        self._lock = threading.Lock()
        self._graphs.clear()
        self._devices.clear()
        self._each(lambda observer: observer.after_fork())
        self.reset()

    def _stop(self) -> None:
        self._each(lambda observer: observer.stop(), last_first=True)

    def _each(self, action: Callable[[Observer], None], last_first: bool = False) -> None:
        """An observer that fails is noted, and the others go on."""
        for name, observer in reversed(self._observers) if last_first else self._observers:
            with self.failures.guard(name):
                action(observer)

    def _deliver_last(self) -> None:
        with no_garbage_collection(), descriptors.some_more():
            report = self._report(MAX_PARSING_AT_EXIT_S if self._wants_kernels else 0)
            report.run.status = INTERRUPTED if self._hooks.interrupted else ENDED
            if has_content(report):
                self._deliver(report)
            else:
                self._live.discard()
            with self.failures.guard("the other ranks' reports"):
                self._gather(report)

    def _all_graphs(self) -> list[ObservedGraph]:
        with self._lock:
            return list(self._graphs)

    def _compilations(self) -> tuple[Hashable, ...]:
        """Differs where one has begun or ended since."""
        log = self.compile_log
        return log.totals.count, *(one.since_at for one in log.live.compiling())

    def _gather(self, report: Report) -> None:
        if self._show_ranks is None:
            return
        run = self._job.gathered(report)
        if run is not None:
            self._show_ranks(run)

    def _answer(self, asked: Asked) -> tuple[int, Callable[[], None]]:
        """For a signal: what is to be done on a thread of ours."""

        def answer() -> None:
            with self.failures.guard("an answer to a signal"):
                asked.tell(self.report())
            self._live.snapshots.soon()

        return asked.signal, answer

    # --- Compilation ----------------------------------------------------------------------------

    def open_graph(
        self, gm: Any, inputs: Iterable[Any], name: str | None, config: dict[str, Any]
    ) -> ObservedGraph:
        """Take note of a graph that Dynamo hands to the backend."""
        graph = ObservedGraph(self._calls, self.ops, self._device)
        with self.failures.guard("graph"):
            graph.describe(gm, name, config)
        with self.failures.guard("source files"):
            self._sources.see(graph.node_lines.files if graph.node_lines else ())
        with self.failures.guard("torch.compile"):
            graph.record.compiled = self.compiled.graph_opened(dynamo.compilation_under_way())
        with self.failures.guard("captured ops"):
            graph.ops = self.ops.add_graph(gm)
        with self.failures.guard("the job"):
            self._job.look()
        with self.failures.guard("devices"):
            for value in inputs:
                kind = fx.device_kind(value)
                if kind is not None:
                    self._devices.setdefault(kind)
        with self._lock:
            if len(self._graphs) < MAX_GRAPHS:
                graph.record.graph = len(self._graphs)
                self._graphs.append(graph)
            else:
                self.failures.note(
                    notes.NOT_LISTED, f"more than {MAX_GRAPHS} graphs: later ones are left out"
                )
        with self.failures.guard("devices"):
            device = fx.cuda_device(gm, inputs)
            if device is not None and graph.record.graph is not None:
                self.ops.add_gpu(graph.record.graph, device)
        self.start()  # does nothing but in a forked child
        # Inductor's own end, which waits for its workers, is registered by now.
        self._hooks.call_first(self._program_ends)
        with self.failures.guard("generated code"):
            self._patch_post_compile()
        with self.failures.guard("metric tables"):
            self._metric_tables.install(config)
        with self.failures.guard("compile log"):
            self.compile_log.graph_opened(graph)
        return graph

    @contextmanager
    def compiling(self, graph: ObservedGraph, in_inductor: bool) -> Iterator[None]:
        """Round each piece of compilation for ``graph``; the program's exceptions pass through.

        ``in_inductor`` is for the part that AOTAutograd leaves to Inductor.
        """
        with self.failures.guard("counters"):
            self.ledger.enter(graph, graph.inductor_counts if in_inductor else graph.aot_counts)
        if in_inductor:
            with self.failures.guard("metric tables"):
                self._metric_tables.compilation_starts()
        try:
            yield
        finally:
            if in_inductor:
                with self.failures.guard("metric tables"):
                    self._metric_tables.compilation_ends()
            with self.failures.guard("counters"):
                self.ledger.leave()
                self.compile_log.code_compiled(graph)
            graph.kept = None
            if self._device is not None and "cuda" in self._devices:
                self._device.want()

    def _program_ends(self) -> None:
        with self.failures.guard("op meter"):
            self.ops.program_ends()

    def given_to_inductor(self, gm: Any) -> None:
        """A graph of AOTAutograd's, before Inductor changes it."""
        with self.failures.guard("a kernel's origins"):
            self._codegen.given(gm)

    def is_compiling(self) -> bool:
        """Is this thread inside a compilation that is observed?"""
        with self.failures.guard("counters"):
            return self.ledger.current() is not None
        return True

    def _patch_post_compile(self) -> None:
        # Here and not at the start: this imports Inductor, which the program may never need.
        if not self._post_compile_patched:
            self._post_compile_patched = True
            inductor.patch_post_compile(self._code_loaded)
            inductor.patch_kernel_definition(self._kernel_defined)
            self._cudagraphs.install()

    def _kernel_defined(self, name: str, nodes: Any, kernel: Any) -> None:
        with self.failures.guard("a kernel's origins"):
            if self.ledger.current() is not None:  # or somebody else's, with plain Inductor
                self._codegen.defined(name, nodes, kernel)

    def _code_loaded(self, compiled_graph: Any) -> None:
        graph = None
        with self.failures.guard("generated code"):
            graph = self.ledger.current()
        if graph is None:
            return  # compiled for somebody else: plain Inductor in the same process
        with self.failures.guard("backward region"):
            is_backward = inductor.is_backward_code(compiled_graph)
            if is_backward:
                compiled_graph.current_callable = graph.backward(compiled_graph.current_callable)
        with self.failures.guard("generated code"):
            backward = is_backward or graph.record.direction == "backward"
            self._read_code(graph, compiled_graph, "backward" if backward else "forward")
        with self.failures.guard("metric tables"):
            self._metric_tables.code_loaded(compiled_graph)

    def _read_code(self, graph: ObservedGraph, compiled_graph: Any, direction: str) -> None:
        path = inductor.code_path(compiled_graph)
        code = GeneratedCode(compiled_graph, path, direction, graph.node_lines)
        if self._kernel_timer is not None:
            with self.failures.guard("kernel times"):
                cpp = [kernel.name for kernel in code.names if kernel.language == "cpp"]
                modules = inductor.generated_modules()
                code.times = self._kernel_timer.install(modules, path, cpp)
        self._codegen.file(path, [kernel.name for kernel in code.names], graph.node_lines)
        graph.code.append(code)
        self._reader.read(code, compiled_graph)

    def observed_graphs(self) -> list[ObservedGraph]:
        with self.failures.guard("captured ops"):
            self.ops.count_graphs()
        return self._all_graphs()

    def report(self) -> Report:
        """Everything observed so far, as plain data that later events don't change."""
        return self._report(None)

    def figures(self) -> Report:
        """The same without what takes long: code not read yet, ops not counted yet."""
        observed = None
        with self.failures.guard("ops"):
            observed = self.ops.read(listed=False)
        return self._assemble(observed, Kept(listed=False))

    def _report(self, parsing_limit_s: float | None) -> Report:
        """``parsing_limit_s`` bounds the time for generated code that has not been parsed yet."""
        with self.failures.guard("counters"):
            self.ledger.settle()
        observed = None
        with self.failures.guard("captured ops"):
            self.ops.count_graphs(math.inf if parsing_limit_s is None else EXIT_PATIENCE_S)
        with self.failures.guard("ops"):
            observed = self.ops.read()
        if self._device is not None and _in_main_thread():  # where its windows open
            self._device.close()
        graphs = self._all_graphs()
        codes = [code for graph in graphs for code in graph.code]
        unread = self._reader.finish(codes, parsing_limit_s)
        if unread and self._wants_kernels:
            self.failures.note(
                notes.NOT_PARSED,
                f"the kernels of {unread} graphs are listed by name only: no time at exit; "
                "the command `kernels` reads their modules",
            )
        return self._assemble(observed)

    def _assemble(self, observed: Observed | None, kept: Kept | None = None) -> Report:
        """``kept`` is for snapshots."""
        cudagraphs = CudaGraphsSection()
        with self.failures.guard("CUDA graphs"):
            cudagraphs = self._cudagraphs.report()
        with self._lock:
            graphs, devices = list(self._graphs), list(self._devices)
        remarks = self.failures.notes
        report = assemble(
            graphs=graphs,
            log=self.compile_log,
            cudagraphs=cudagraphs,
            observed=observed,
            not_observed=self.ops.unavailable,
            device=self._device,
            outside=self.ledger.outside,
            devices=devices,
            started=self._started,
            sources=self._sources,
            remarks=remarks,
            status=RUNNING,
            guard=self.failures.guard,
            kept=kept,
        )
        with self.failures.guard("the job"):
            self._job.describe(report.run)
            report.collectives = self._job.collectives()
        with self.failures.guard("what became of torch.compile"):
            report.compiled = compiled_records(
                self.compiled.all(),
                report.graphs,
                report.ops.captured.ops,
                report.compiling,
            )
        with self.failures.guard("cells of the notebook"):
            name_cells(report)
        report.add_notes(*(note for note in self.failures.notes if note not in remarks))
        return report


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
