"""One captured graph while the program runs: its record, its counts, its regions."""

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from instrumented_backend.observe.code.generated import GeneratedCode
from instrumented_backend.observe.code.node_lines import NodeLines
from instrumented_backend.observe.graphs.calls import CallCounter, GraphCalls
from instrumented_backend.observe.graphs.counters import METRICS_GROUP, Counts, add
from instrumented_backend.observe.messages.reasons import read_reason
from instrumented_backend.observe.native.keys import region_key
from instrumented_backend.observe.ops.captured import GraphOps
from instrumented_backend.observe.ops.meter import OpMeter
from instrumented_backend.records import GraphRecord
from instrumented_backend.torch_compat import dynamo, fx, profilers

if TYPE_CHECKING:
    import torch

    from instrumented_backend.observe.device.meter import DeviceMeter

FORWARD_REGION = "TORCHDYNAMO"
BACKWARD_REGION = "TORCHDYNAMO_BACKWARD"


def count_ops(gm: "torch.fx.GraphModule") -> int:
    """The graph's call nodes, those of nested graphs included.

    Not ops: ``getitem``, which picks from a tuple, and higher-order operators, whose nested
    graph holds the ops.
    """
    return sum(
        node.op in ("call_function", "call_method", "call_module")
        and node.target is not operator.getitem
        and not fx.is_higher_order(node.target)
        for graph in fx.graphs_in(gm)
        for node in graph.nodes
    )


class ObservedGraph:
    """A graph's record with the counts that change while the program runs."""

    def __init__(self, calls: GraphCalls, ops: OpMeter, device: "DeviceMeter | None") -> None:
        self.record = GraphRecord()
        self.ops: GraphOps | None = None  # what eager would dispatch for it
        self.node_lines: NodeLines | None = None
        self.started = False  # has been called with the program's own inputs
        self._graph_calls = calls
        self._meter = ops
        self._device = device
        self.code: list[GeneratedCode] = []
        self.calls = CallCounter()
        self.backward_calls = CallCounter()
        self.inductor_counts: Counts = {}  # moved while Inductor compiled its graphs
        self.aot_counts: Counts = {}  # moved by AOTAutograd around that, or by a cache hit
        self.compiled_before_reset = False
        self.attempt = 0  # of the compilation, which Dynamo may start over
        self.kept: GraphRecord | None = None  # for snapshots: until anything but a call happens
        self.discarded = False  # by Dynamo: what it handed over next, or nothing, took its place

    def describe(
        self, gm: "torch.fx.GraphModule", name: str | None, config: dict[str, Any]
    ) -> None:
        """Fill in what is known when the backend is called."""
        record = self.record
        record.name = name
        record.config = {option: str(value) for option, value in config.items()}
        compile_id = dynamo.current_compile_id()
        record.compile_id = str(compile_id)
        self.attempt = dynamo.current_attempt()
        if dynamo.is_compiled_autograd(compile_id):
            record.direction = "backward"
        record.ops = count_ops(gm)
        reason = dynamo.subgraph_reason(gm)
        if reason is not None and reason.user_stack:
            # The function's own frame; the compile log knows its first line later.
            frame = reason.user_stack[0]
            record.function, record.file, record.line = frame.name, frame.filename, frame.lineno
        if reason is not None and reason.graph_break:
            record.ended_by = read_reason(str(reason.reason)).text
        self.node_lines = NodeLines(gm)

    def reset(self) -> None:
        """Forget the calls and the compilation, not the graph."""
        self.kept = None
        self.calls.reset()
        self.backward_calls.reset()
        for code in list(self.code):
            if code.times is not None:
                code.times.reset()
        self.inductor_counts = {}
        self.aot_counts = {}
        self.compiled_before_reset = True

    def counts(self) -> tuple[Counts, Counts]:
        """What the compilation moved, and the part that a warm cache would not repeat.

        Inductor keeps the metrics of a graph's compilation with its code and moves them again
        when a cache has it, so that they are the same cold and warm. What AOTAutograd's passes
        over the joint graph move on a cold run (``num_matches_for_scatter_upon_const_tensor``)
        is not kept: it would make one program look like two.
        """
        kept, cold_only = dict(self.inductor_counts), {}
        from_cache = bool(self.aot_counts.get(("aot_autograd", "autograd_cache_hit")))
        for key, value in self.aot_counts.items():
            if key[0] == METRICS_GROUP and not from_cache:
                cold_only[key] = value
            else:
                add(kept, {key: value})
        return kept, cold_only

    def forward(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """``compiled``, each call counted and marked as a region.

        Graphs of compiled autograd are forward graphs to Inductor and backward ones to the user.
        """
        return self._observed(compiled, self.record.direction == "backward")

    def backward(self, compiled: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
        """The same for a compiled backward, which takes its inputs as one list and empties it."""
        return self._observed(compiled, True)

    def _observed(self, compiled: Callable[..., Any], backward: bool) -> Callable[..., Any]:
        counter = self.backward_calls if backward else self.calls
        key = region_key(self.record.graph, backward)
        region = BACKWARD_REGION if backward else FORWARD_REGION
        marked = self._marked(compiled, counter, key, region)
        return self._graph_calls.counted(compiled, marked, counter, self, key)

    def _marked(
        self, compiled: Callable[..., Any], counter: CallCounter, key: int, region: str
    ) -> Callable[..., Any]:
        """``compiled`` counted, in a region for the op meter and for a profiler that is running."""
        meter, device = self._meter, self._device
        is_profiled, record_function = profilers.is_running, profilers.record_function_fast()

        def marked(*args: Any) -> Any:
            if not self.started:
                # DDPOptimizer runs each bucket once on fake tensors while it compiles.
                if any(map(fx.is_fake, args)):
                    return compiled(*args)
                self.started = True
            next(counter.numbers)
            if device is not None:
                device.enter(key)
            metered = meter.active
            try:
                if metered:
                    meter.enter(key)
                if is_profiled():
                    with record_function(region):
                        return compiled(*args)
                return compiled(*args)
            finally:
                if metered:  # also where an interrupt came in `enter`
                    meter.leave(key)

        return marked
