"""The API of ``torch._dynamo.profiler``: captured ops and time against all, for one profile.

The names are those of PyTorch's module, so that code written for it works when only its import
changes. The figures differ where PyTorch's are wrong: Dynamo's own events are no ops and enclose
none, nothing is subtracted for ops that no longer exist, threads are told apart, backward counts,
and graphs that Inductor compiled count with the ops that eager would have dispatched.
"""

import dataclasses
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

from instrumented_backend.records.escapes import shown

_REGIONS = ("TORCHDYNAMO", "TORCHDYNAMO_BACKWARD")
_OP_BY_OP = "TORCHDYNAMO: op by op"  # inside a region whose ops run one by one
_NODE = "autograd::engine::evaluate_function: "
_WRAPPERS = (
    "Torch-Compiled Region",
    "TorchDynamo Cache Lookup",
    "Pregraph bytecode",
    "AOTDispatcher Runtime Wrapper Prologue",
    "## Call CompiledFxGraph",
    "CompiledFunction",
)
_FUNCTION_SCOPES = (0, 1)  # at::RecordScope: FUNCTION, BACKWARD_FUNCTION


@dataclasses.dataclass
class ProfileMetrics:
    """Sums over one part of a profile: microseconds, ops, ops saved by fusion, graph calls."""

    microseconds: float = 0.0
    operators: float = 0
    fusions: float = 0
    graphs: float = 0

    def __iadd__(self, other: "ProfileMetrics") -> "ProfileMetrics":
        self.microseconds += other.microseconds
        self.operators += other.operators
        self.fusions += other.fusions
        self.graphs += other.graphs
        return self

    def __add__(self, other: "ProfileMetrics") -> "ProfileMetrics":
        if not isinstance(other, ProfileMetrics):
            return NotImplemented
        total = dataclasses.replace(self)
        total += other
        return total

    def __truediv__(self, other: "ProfileMetrics | float") -> "ProfileMetrics":
        """Divide field by field, or all fields by one number. 0 / 0 is 0."""
        if not isinstance(other, ProfileMetrics):
            other = ProfileMetrics(other, other, other, other)
        return ProfileMetrics(
            self.microseconds / (other.microseconds or 1),
            self.operators / (other.operators or 1),
            self.fusions / (other.fusions or 1),
            self.graphs / (other.graphs or 1),
        )

    def __str__(self) -> str:
        return f"{self.operators:4.0%} ops {self.microseconds:4.0%} time"

    def tocsv(self) -> list[float]:
        """Operators, microseconds."""
        return [self.operators, self.microseconds]


class ProfileResult:
    """Captured against total; ``unique_graphs`` is how many graphs there were."""

    def __init__(self, captured: ProfileMetrics, total: ProfileMetrics, unique_graphs: int) -> None:
        self.captured = captured or ProfileMetrics()
        self.total = total or ProfileMetrics()
        self.unique_graphs = unique_graphs

    def __iadd__(self, other: "ProfileResult") -> "ProfileResult":
        self.captured += other.captured
        self.total += other.total
        self.unique_graphs += other.unique_graphs
        return self

    def percent(self) -> ProfileMetrics:
        """Captured as a share of total, 0 to 1."""
        return self.captured / self.total

    def __str__(self) -> str:
        return (
            f"{self.unique_graphs:2} graphs {self.captured.graphs:2} graph calls "
            f"{self.captured.operators:4}/{self.total.operators:4} = {self.percent()}"
        )

    def tocsv(self) -> list[Any]:
        """Graphs, graph calls, captured ops, total ops, and the shares of ops and of time."""
        return [
            self.unique_graphs,
            self.captured.graphs,
            self.captured.operators,
            self.total.operators,
            *self.percent().tocsv(),
        ]


def should_print_missing() -> bool:
    return os.environ.get("TORCHDYNAMO_PRINT_MISSING") == "1"


_printed: set[str] = set()


def print_missing(stack: Iterable[str]) -> None:
    """Print an op's stack, each once: its last three frames outside torch and built-ins."""
    frames = [
        frame
        for frame in stack
        if "<built-in" not in frame and f"site-packages{os.sep}torch{os.sep}" not in frame
    ]
    text = " >> ".join(frames[-3:])
    if text and text not in _printed:
        _printed.add(text)
        print("MISSING", shown(text))


@dataclasses.dataclass
class _Span:
    """A profiler's event, in microseconds."""

    name: str
    start: float
    end: float
    stack: list[str]


class Profiler:
    """``with Profiler() as ...``: run the program under ``prof``, then ask for `results`.

    >>> profiler = Profiler()
    >>> with profiler.prof:
    ...     step()
    >>> print(profiler.results())
     2 graphs 20 graph calls   80/  80 = 100% ops 100% time
    """

    unique_graphs: int = 0  # by `fx_insert_profiling`, since the last results

    def __init__(self) -> None:
        import torch

        self.prof = torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU],
            with_stack=should_print_missing(),
        )
        self._calls_before: dict[int, tuple[int, int]] = {}
        start = self.prof.start

        def start_and_note() -> None:
            self._calls_before = {
                id(graph): (graph.calls.value, graph.backward_calls.value)
                for graph in _observed_graphs()
            }
            start()

        self.prof.start = start_and_note  # type: ignore[method-assign]

    def results(self) -> ProfileResult:
        """After the profile has ended. Ops are outermost events on their thread; one autograd node
        is one op. Compiled graphs count with the ops that eager would have dispatched."""
        captured, eager = ProfileMetrics(), ProfileMetrics()
        for spans in _by_thread(self.prof.events()):
            _count_thread(spans, captured, eager)
        graphs, ops = self._compiled_graphs()
        captured.operators += ops
        captured.fusions = max(0, captured.operators - captured.graphs)
        total = captured + eager
        total.graphs = captured.graphs
        total.fusions = max(0, total.operators - 1)
        unique_graphs, Profiler.unique_graphs = Profiler.unique_graphs + graphs, 0
        return ProfileResult(captured, total, unique_graphs)

    def _compiled_graphs(self) -> tuple[int, int]:
        """How many of the backend's graphs ran, and the ops that they took over."""
        graphs = ops = 0
        for graph in _observed_graphs():
            before = self._calls_before.get(id(graph), (0, 0))
            calls = graph.calls.value - before[0]
            backward_calls = graph.backward_calls.value - before[1]
            graphs += bool(calls or backward_calls)
            if graph.ops is not None:
                ops += calls * (graph.ops.forward or 0)
                ops += backward_calls * (graph.ops.backward or 0)
        return graphs, ops


def _observed_graphs() -> list[Any]:
    """The graphs of ``backend="instrumented"``, their ops counted; none if it is not in use."""
    backend = sys.modules.get("instrumented_backend.backend")
    return [] if backend is None else backend.observed_graphs()


def _by_thread(events: Iterable[Any]) -> list[list[_Span]]:
    threads: dict[int, list[_Span]] = {}
    for event in events:
        if event.is_async or not (
            event.scope in _FUNCTION_SCOPES or event.name in (*_REGIONS, _OP_BY_OP)
        ):
            continue
        times = event.time_range
        threads.setdefault(event.thread, []).append(
            _Span(event.name, times.start, times.end, event.stack or [])
        )
    for spans in threads.values():
        spans.sort(key=lambda span: (span.start, -span.end))
    return list(threads.values())


def _count_thread(spans: list[_Span], captured: ProfileMetrics, eager: ProfileMetrics) -> None:
    region_end = op_by_op_end = op_end = -1.0
    for span in spans:
        if span.name == _OP_BY_OP:
            op_by_op_end = span.end
            continue
        if span.name in _REGIONS:
            if span.start >= region_end:
                region_end = span.end
                captured.graphs += span.name == "TORCHDYNAMO"
                captured.microseconds += span.end - span.start
            continue
        if span.name.removeprefix(_NODE).startswith(_WRAPPERS) or span.start < op_end:
            continue
        if span.start < region_end:
            if span.start < op_by_op_end:
                op_end = span.end
                captured.operators += 1
            continue
        op_end = span.end
        eager.operators += 1
        eager.microseconds += span.end - span.start
        if should_print_missing():
            print_missing(span.stack)


def fx_insert_profiling(gm: Any, example_inputs: list[Any]) -> Callable[..., Any]:
    """A Dynamo backend: the graph as it is, op by op, in a region that `Profiler` knows."""
    import torch

    def call(*args: Any) -> Any:
        with (
            torch.profiler.record_function("TORCHDYNAMO"),
            torch.profiler.record_function(_OP_BY_OP),
        ):
            return gm.forward(*args)

    Profiler.unique_graphs += 1
    return call
