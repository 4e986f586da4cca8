"""How many ops a graph would have dispatched in eager: forward, by its nodes, and backward.

Dynamo runs every node on fake tensors while it captures, gradients included. What it leaves in
``node.meta["example_value"]`` tells the rest, on cold and warm caches alike: the autograd graph of
the outputs is the backward that eager would run, and a node run again on made-up inputs of the
same kind shows what it dispatches.

Running nodes again takes 0.1 to 0.3 ms each, so that `OpCounter` puts it off until a report is
made, and does it once for each distinct `Call`: the layers of a model repeat each other.
"""

import hashlib
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from instrumented_backend.observe.ops.lines import Line
from instrumented_backend.observe.ops.origins import backward_lines, line_of
from instrumented_backend.torch_compat import fx

if TYPE_CHECKING:
    import torch

# Nodes of the autograd graph that eager's backward does not count as the graph's own work.
_NOT_COUNTED = ("torch::autograd::AccumulateGrad", "torch::autograd::Error")


@dataclass(frozen=True)
class TensorLike:
    """What of a tensor decides which ops a function dispatches; sizes as plain numbers."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: Any
    device: str
    argument: int  # one tensor given twice is one argument: some functions look

    def make(self, device: str | None = None) -> Any:
        """A tensor of this kind, on ``device`` instead of its own: "meta" has no memory."""
        import torch

        return torch.empty_strided(
            self.shape, self.stride, dtype=self.dtype, device=device or self.device
        )


@dataclass(frozen=True)
class Call:
    """A node's function with its arguments: calls of equal digest dispatch the same ops."""

    op: str
    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def digest(self) -> bytes:
        text = repr((self.op, target_name(self.target), id(self.target), self.args, self.kwargs))
        return hashlib.blake2b(text.encode(), digest_size=16).digest()


@dataclass
class GraphOps:
    """What one graph would dispatch, by line; ``forward_lines`` once its calls have been run."""

    # Digest of the `Call`, and its line → how often.
    calls: Counter[tuple[bytes, Line]] = field(default_factory=Counter)
    certain: Counter[Line] = field(default_factory=Counter)  # ops that need no call to be counted
    estimated: Counter[str] = field(default_factory=Counter)  # reason → nodes counted as one op
    nodes: Counter[tuple[Line, str]] = field(default_factory=Counter)  # line and what is called
    backward_lines: Counter[Line] | None = None  # None: the outputs' gradients are unknown
    forward_lines: Counter[Line] | None = None

    @property
    def forward(self) -> int | None:
        return None if self.forward_lines is None else self.forward_lines.total()

    @property
    def backward(self) -> int | None:
        return None if self.backward_lines is None else self.backward_lines.total()


def describe(gm: "torch.fx.GraphModule") -> tuple[GraphOps, dict[bytes, Call]]:
    """The graph's calls, by digest, and its autograd nodes; runs nothing."""
    ops = GraphOps()
    calls: dict[bytes, Call] = {}
    _describe_nodes(gm, ops, calls)
    ops.backward_lines = count_autograd_nodes(gm)
    for node in gm.graph.nodes:
        # What eager would run depends on the device's library.
        if _name(node) in fx.RECURRENT and ops.backward:
            ops.estimated[f"the backward of {_name(node)}"] += 1
    return ops, calls


def _describe_nodes(gm: "torch.fx.GraphModule", ops: GraphOps, calls: dict[bytes, Call]) -> None:
    for node in gm.graph.nodes:
        if node.op == "call_module":
            ops.certain[line_of(node)] += 1
            ops.estimated["a module called as a whole"] += 1
        elif node.op not in ("call_function", "call_method"):
            continue
        elif fx.is_higher_order(node.target):
            _describe_higher_order(gm, node, ops, calls)
        elif fx.is_func_wrapping(node.target):
            _describe_func_step(node, ops)
        elif _touches_tensors(node):
            line = line_of(node)
            ops.nodes[line, target_name(node.target)] += 1
            if not fx.is_torchs_own(node.target):
                # Never run again: it may print, count, write. An operator of the program's is one
                # op, whatever it calls; a function that Dynamo does not look into can be any.
                ops.certain[line] += 1
                if not fx.is_operator(node.target):
                    ops.estimated[f"a call of {target_name(node.target)}"] += 1
                continue
            try:
                call = _call(node)
            except _UnknownValue as reason:
                ops.certain[line] += 1
                ops.estimated[str(reason)] += 1
            else:
                digest = call.digest()
                calls.setdefault(digest, call)
                ops.calls[digest, line] += 1


def _describe_higher_order(
    gm: "torch.fx.GraphModule", node: "torch.fx.Node", ops: GraphOps, calls: dict[bytes, Call]
) -> None:
    """Some run their nested graph op by op, some are one op, some none."""
    name = fx.higher_order_name(node.target)
    if name in fx.TRANSPARENT_OPERATORS:
        for nested in _nested_graphs(gm, node):
            _describe_nodes(nested, ops, calls)
        return
    if name in fx.OPLESS_OPERATORS:
        return
    ops.certain[line_of(node)] += 1
    ops.nodes[line_of(node), name] += 1
    if name not in fx.SINGLE_OPERATORS:
        ops.estimated[f"higher-order operator {name}"] += 1


def _nested_graphs(
    gm: "torch.fx.GraphModule", node: "torch.fx.Node"
) -> Iterator["torch.fx.GraphModule"]:
    for argument in node.args:
        if getattr(argument, "op", None) == "get_attr":
            nested = fx.attribute(gm, str(argument.target))  # type: ignore[union-attr]
            if fx.is_graph_module(nested):
                yield nested


def _describe_func_step(node: "torch.fx.Node", ops: GraphOps) -> None:
    """A step of a torch.func transform; a gradient runs autograd nodes in the graph's forward."""
    if fx.is_func_operator(node.target):
        ops.certain[line_of(node)] += 1
    elif fx.is_func_gradients(node.target):
        outputs = list(_tensors(map_leaves(_value, node.args[:1])))
        given = len(node.args) > 2 and node.args[2] is not None
        # Without gradients to start from, torch makes them.
        autograd_nodes = len(_counted_nodes(outputs, set()))
        ops.certain[line_of(node)] += autograd_nodes + (0 if given else len(outputs))


def _touches_tensors(node: "torch.fx.Node") -> bool:
    """False for what only handles numbers or switches (``operator.add`` of sizes, autocast)."""
    if node.target is operator.getitem and not _is_tensor(_value(node.args[0])):
        return False
    if fx.is_size_operator(node.target):
        return False
    return _has_tensor(_value(node)) or any(
        _has_tensor(_value(argument)) for argument in node.all_input_nodes
    )


def _value(argument: Any) -> Any:
    meta = getattr(argument, "meta", None)
    return argument if meta is None else meta.get("example_value")


def _is_tensor(value: Any) -> bool:
    return fx.device_kind(value) is not None


def _has_tensor(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_has_tensor, value))
    return _is_tensor(value)


class _UnknownValue(ValueError):
    """An argument that cannot be made up again."""


def _call(node: "torch.fx.Node") -> Call:
    seen: dict[int, int] = {}

    def template(value: Any) -> Any:
        """Every tensor and symbolic number replaced by what it is like."""
        if hasattr(value, "op") and hasattr(value, "meta"):
            if "example_value" not in value.meta:
                raise _UnknownValue(f"a {value.op} node without an example value")
            value = value.meta["example_value"]
            if isinstance(value, (list, tuple)):
                return map_leaves(template, value)
        if not _is_tensor(value):
            return fx.number_hint(value)
        kind = fx.tensor_kind(value)
        if kind is None:
            raise _UnknownValue(f"an argument of type {type(value).__name__}")
        return TensorLike(**kind, argument=seen.setdefault(id(value), len(seen)))

    args, kwargs = map_leaves(template, node.args), map_leaves(template, dict(node.kwargs))
    return Call(node.op, node.target, args, kwargs)


def map_leaves(function: Callable[[Any], Any], value: Any) -> Any:
    """``function`` of every leaf of nested lists, tuples, dictionaries and slices."""
    if isinstance(value, (list, tuple)):
        items = [map_leaves(function, item) for item in value]
        if isinstance(value, list):
            return items
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, dict):
        return {key: map_leaves(function, item) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(
            *(map_leaves(function, item) for item in (value.start, value.stop, value.step))
        )
    return function(value)


def count_autograd_nodes(gm: "torch.fx.GraphModule") -> Counter[Line] | None:
    """The nodes that backward would run from all results that require gradients, by line.

    Results are the outputs, and the inputs that the graph changes in place. What Dynamo made up as
    the history of an input, where it is a view, is not the graph's.

    On fake tensors, Dynamo's stand-in for dropout clones where the real one returns its input, and
    interpolation is put together from other ops, where the real one is a node; what is more than
    in eager is left out.
    """
    values = _outputs(gm)
    if any(value is None for value in values):
        return None
    left_out: set[Any] = set()
    histories: set[Any] = set()
    repeated: Counter[Line] = Counter()
    for node in gm.graph.nodes:
        result = _value(node)
        if node.op == "placeholder":
            if _is_tensor(result) and result.grad_fn is not None:
                if fx.is_changed(result):
                    values.append(result)
                else:
                    histories.add(result.grad_fn)
            continue
        if _is_repetition(node, result):
            # Its results have no history: that of the first call, and what came before this one.
            repeated[line_of(node)] += sum(map(_own_nodes, _nested_graphs(gm, node)))
            values += [_value(argument) for argument in node.all_input_nodes]
        if not _is_tensor(result) or result.grad_fn is None:
            continue
        if _is_dropout(node) and result.grad_fn.name() == "CloneBackward0":
            left_out.add(result.grad_fn)
        elif _name(node) in fx.ONE_AUTOGRAD_NODE:
            left_out |= _nodes_behind(node, result)
    counted = _counted_nodes(_tensors(values), left_out, histories)
    return repeated + backward_lines(_with_nested(gm), counted, _gradients)


def _with_nested(gm: "torch.fx.GraphModule") -> "Iterator[torch.fx.Node]":
    """The nodes in the order in which they run, those of nested graphs before their call."""
    for node in gm.graph.nodes:
        if fx.is_higher_order(node.target):
            for nested in _nested_graphs(gm, node):
                yield from _with_nested(nested)
        yield node


def _gradients(argument: Any) -> list[Any]:
    """The autograd nodes of what a node gave, or of an argument."""
    return [one.grad_fn for one in _tensors([_value(argument)]) if one.grad_fn is not None]


def _outputs(gm: "torch.fx.GraphModule") -> list[Any]:
    output = next(node for node in gm.graph.nodes if node.op == "output")
    return [_value(node) for node in output.all_input_nodes]


def _is_repetition(node: "torch.fx.Node", result: Any) -> bool:
    """A call of a nested graph that Dynamo has traced for an earlier call."""
    return fx.is_higher_order(node.target) and any(
        value.requires_grad and value.grad_fn is None for value in _tensors([result])
    )


def _own_nodes(gm: "torch.fx.GraphModule") -> int:
    """The autograd nodes of a nested graph, without those of its inputs."""
    inputs = [_value(node) for node in gm.graph.nodes if node.op == "placeholder"]
    histories = [value.grad_fn for value in _tensors(inputs)]
    return len(_counted_nodes(_tensors(_outputs(gm)), set(), histories))


def _nodes_behind(node: "torch.fx.Node", result: Any) -> set[Any]:
    """The autograd nodes that ``node`` made besides its result's own."""
    inputs = [value for value in map(_value, node.all_input_nodes) if _is_tensor(value)]
    before = {value.grad_fn for value in inputs if value.grad_fn is not None}
    found: set[Any] = set()
    met = not before
    pending = [successor for successor, _ in result.grad_fn.next_functions]
    while pending:
        one = pending.pop()
        if one in before:
            met = True
        elif one is not None and one not in found:
            found.add(one)
            pending += [successor for successor, _ in one.next_functions]
    # Or an input was changed in place later, and where it was then is not known any more.
    return found if met else set()


def _counted_nodes(
    values: Iterable[Any], left_out: set[Any], histories: Iterable[Any] = ()
) -> list[Any]:
    """The distinct nodes of the tensors' autograd graphs, but for some, up to the ``histories``."""
    pending = [value.grad_fn for value in values if value.requires_grad]
    seen = {None, *histories}
    counted = []
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        pending += [successor for successor, _ in node.next_functions]
        if node not in left_out and node.name() not in _NOT_COUNTED:
            counted.append(node)
    return counted


def _tensors(values: Iterable[Any]) -> Iterable[Any]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _tensors(value)
        elif _is_tensor(value):
            yield value


def _is_dropout(node: "torch.fx.Node") -> bool:
    return "dropout" in _name(node)


def _name(node: "torch.fx.Node") -> str:
    return str(getattr(node.target, "__name__", ""))


def target_name(target: Any) -> str:
    return target if isinstance(target, str) else getattr(target, "__name__", str(target))
