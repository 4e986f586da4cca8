"""FX graphs as Dynamo hands them over: their operators, and the values that stand in them."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

# Private names, by the versions of torch that have them.
NAMES = {
    "2.11 to 2.15": (
        "torch.Tensor._version",
        "torch._C._functorch",
        "torch._functorch.eager_transforms",
        "torch._functorch.eager_transforms._autograd_grad",
        "torch._functorch.predispatch",
        "torch._ops.HigherOrderOperator",
        "torch._ops.HigherOrderOperator._name",
        "torch._ops.OpOverload",
        "torch._ops.OpOverloadPacket",
        "torch._subclasses.fake_tensor.FakeTensor",
        "torch._subclasses.fake_tensor.FakeTensorMode",
        "torch.autograd.graph.Node._sequence_nr",
    ),
}


def graphs_in(gm: "torch.fx.GraphModule") -> Iterator["torch.fx.Graph"]:
    """The graph of ``gm`` and those nested in it, each once."""
    from torch.fx import GraphModule

    for module in gm.modules():
        if isinstance(module, GraphModule):
            yield module.graph


def attribute(gm: "torch.fx.GraphModule", target: str) -> Any:
    """What a ``get_attr`` node of ``gm`` refers to."""
    value: Any = gm
    for name in target.split("."):
        value = getattr(value, name)
    return value


def is_graph_module(value: Any) -> bool:
    from torch.fx import GraphModule

    return isinstance(value, GraphModule)


def is_operator(target: Any) -> bool:
    from torch._ops import OpOverload, OpOverloadPacket

    return isinstance(target, (OpOverload, OpOverloadPacket))


def is_size_operator(target: Any) -> bool:
    """Is it ``aten.sym_size.int`` or its like? In eager, a size is asked for without an op."""
    return is_operator(target) and str(target).partition("(")[0].startswith("aten.sym_")


def is_torchs_own(target: Any) -> bool:
    """Is what a node calls torch's or Python's, rather than the program's or some package's?

    Method names are torch's: Dynamo calls methods of tensors only.
    """
    if isinstance(target, str):
        return True
    if is_operator(target):
        namespace = str(target).partition(".")[0]
        return namespace in ("aten", "prim", "prims")
    # An autograd.Function of the program's has a method ``apply`` of torch's.
    owner = getattr(target, "__self__", None)
    named = owner if isinstance(owner, type) else target
    module = getattr(named, "__module__", None) or "torch"  # that of torch.sin is None
    return module.partition(".")[0] in ("torch", "_operator", "math", "builtins")


def is_higher_order(target: Any) -> bool:
    from torch._ops import HigherOrderOperator

    return isinstance(target, HigherOrderOperator)


def higher_order_name(operator: Any) -> str:
    return str(operator._name)


# In eager, these run their nested graph op by op,
TRANSPARENT_OPERATORS = frozenset(
    {
        "dynamo_bypassing_wrapper",
        "hints_wrapper",
        "invoke_subgraph",
        "strict_mode",
        "tag_activation_checkpoint",
        "wrap",
        "wrap_activation_checkpoint",
        "wrap_with_autocast",
        "wrap_with_set_grad_enabled",
    }
)
# these are one op (an autograd.Function), whatever they enclose,
SINGLE_OPERATORS = frozenset({"autograd_function_apply", "flex_attention"})
# and these dispatch nothing: a Triton kernel of the user's own is launched past the dispatcher.
OPLESS_OPERATORS = frozenset(
    {"register_hook", "triton_kernel_wrapper_functional", "triton_kernel_wrapper_mutation"}
)
# What torch.func wraps tensors with. All but these only keep its books, in no op.
_FUNC_MODULES = (
    "torch._C._functorch",
    "torch._functorch.eager_transforms",
    "torch._functorch.predispatch",
)
_FUNC_OPERATORS = frozenset({"_make_dual", "_unpack_dual"})
_FUNC_GRADIENTS = "_autograd_grad"


def is_func_wrapping(target: Any) -> bool:
    """A step of ``torch.func``'s transforms. Out of its place, without its levels, it can't run."""
    return getattr(target, "__module__", None) in _FUNC_MODULES


def is_func_operator(target: Any) -> bool:
    """A step of ``torch.func`` that is an op."""
    return getattr(target, "__name__", None) in _FUNC_OPERATORS


def is_func_gradients(target: Any) -> bool:
    """The step of ``torch.func.grad`` and its like that runs the autograd nodes."""
    return getattr(target, "__name__", None) == _FUNC_GRADIENTS


# Functions that fake tensors take apart before autograd sees them; in eager one autograd node each.
ONE_AUTOGRAD_NODE = frozenset(
    {
        "hardshrink",
        "interpolate",
        "multi_margin_loss",
        "multilabel_margin_loss",
        "softshrink",
        "upsample",
        "upsample_bilinear",
        "upsample_nearest",
    }
)
RECURRENT = frozenset({"gru", "lstm", "rnn_relu", "rnn_tanh"})  # taken apart, too


def tensor_method(name: str) -> Callable[..., Any] | None:
    import torch

    return getattr(torch.Tensor, name, None)


def device_kind(value: Any) -> str | None:
    """``"cuda"`` for a tensor on one; None for what is no tensor."""
    import torch

    return value.device.type if isinstance(value, torch.Tensor) else None


def cuda_device(gm: "torch.fx.GraphModule", inputs: Iterable[Any]) -> int | None:
    """On which CUDA device a graph runs, by its inputs, or by what it makes; None: on none."""
    import torch

    made = (node.meta.get("example_value") for node in gm.graph.nodes)
    for value in (*inputs, *made):
        if isinstance(value, torch.Tensor) and value.device.type == "cuda":
            index = value.device.index
            return torch.cuda.current_device() if index is None else int(index)
    return None


def is_device(value: Any) -> bool:
    import torch

    return isinstance(value, torch.device)


def is_fake(value: Any) -> bool:
    from torch._subclasses.fake_tensor import FakeTensor

    return isinstance(value, FakeTensor)


def is_changed(tensor: Any) -> bool:
    """Has a fake tensor, or the memory that it is a view of, been changed in place?

    Fake tensors begin at version 0, whatever the real one's is.
    """
    return not tensor.is_inference() and tensor._version > 0


# Functions that change their first argument without an underscore at the name's end.
_IN_PLACE = frozenset({"setitem", "iadd", "isub", "imul", "itruediv", "ifloordiv", "imatmul"})
_IN_PLACE |= frozenset({"imod", "ipow", "iand", "ior", "ixor", "ilshift", "irshift"})


def is_in_place(node: "torch.fx.Node") -> bool:
    """Does a node change its first argument? ``add_``, ``x[0] = y``, ``relu(x, inplace=True)``."""
    target = node.target
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    if name in _IN_PLACE or bool(node.kwargs.get("inplace")):
        return True
    return name.endswith("_") and not name.endswith("__")


def sequence_number(autograd_node: Any) -> int:
    """A thread's autograd nodes are numbered as they are made."""
    return int(autograd_node._sequence_nr())


def tensor_kind(tensor: Any) -> dict[str, Any] | None:
    """What a plain or fake tensor is like, symbolic sizes by their hints; None for subclasses."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    if type(tensor) not in (torch.Tensor, FakeTensor, torch.nn.Parameter):
        return None
    if tensor.layout is not torch.strided:
        return None
    return {
        "shape": tuple(map(number_hint, tensor.shape)),
        "stride": tuple(map(number_hint, tensor.stride())),
        "dtype": tensor.dtype,
        "device": str(tensor.device),
    }


def number_hint(value: Any) -> Any:
    """The example behind a symbolic number; other values as they are.

    Never asks the symbolic number itself: that would add a guard to the user's graph.
    """
    import torch

    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return value.node.hint
    return value


def fake_mode() -> Any:
    """A context in which calls make and take tensors without memory, apart from Dynamo's own."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode()
