"""Operators: looked up by name, and which of them there is anything to measure in."""

import functools
from typing import Any

import torch

DATA_DEPENDENT = "the shape of its result depends on data: alone it is not compiled"


class UnknownOperator(ValueError):
    """This torch has no such operator; the message is one line."""


def find_operator(name: str) -> torch._ops.OpOverload:
    """``"aten.add.Tensor"`` → the overload. Names are looked up, never evaluated."""
    namespace, _, rest = name.partition(".")
    packet_name, _, overload_name = rest.partition(".")
    found: Any = torch.ops
    for part in (namespace, packet_name, overload_name):
        found = getattr(found, part, None) if part else None
    if not isinstance(found, torch._ops.OpOverload):
        packet = getattr(getattr(torch.ops, namespace, None), packet_name, None)
        if isinstance(packet, torch._ops.OpOverloadPacket):
            choices = ", ".join(packet.overloads())
            raise UnknownOperator(f"{namespace}.{packet_name} has the overloads {choices}")
        raise UnknownOperator(f"torch {torch.__version__} has no operator {name}")
    return found


def arguments_by_name(op: torch._ops.OpOverload, args: tuple[Any, ...]) -> dict[str, Any]:
    """Positional arguments under their names in the schema."""
    names = [argument.name for argument in op._schema.arguments]
    return dict(zip(names, args, strict=False))


@functools.cache
def is_compute(op: torch._ops.OpOverload) -> bool:
    """False for constructors and for views that give one tensor: PyTorch's logs leave them out."""
    schema = op._schema
    if not any(_has_tensor(argument.type) for argument in schema.arguments):
        return False
    if "_like" in op._opname:
        return False
    single = [result for result in schema.returns if result.type.kind() == "TensorType"]
    return len(single) != 1 or not is_view(op)


def is_view(op: torch._ops.OpOverload) -> bool:
    """Whether a result shares its input's memory, and nothing is written."""
    return not op._schema.is_mutable and any(
        result.alias_info is not None for result in op._schema.returns
    )


def _has_tensor(kind: Any) -> bool:
    return kind.isSubtypeOf(torch._C.TensorType.get()) or any(
        map(_has_tensor, kind.containedTypes())
    )


def skip_reason(op: torch._ops.OpOverload) -> str | None:
    """Why there is nothing to compare; None where there is."""
    name = op._opname
    if is_view(op) or name in ("_unsafe_view", "_reshape_alias"):
        return "a view: it moves no data"
    if not any(_has_tensor(result.type) for result in op._schema.returns) and not (
        op._schema.is_mutable
    ):
        return "it returns no tensor"
    if not is_compute(op):
        return "a constructor: it has no tensor to work on, or uses its shape alone"
    if name in ("new_empty", "new_empty_strided", "resize_", "set_"):
        return "it only allocates"
    if _gives_any_shape(op) and name != "index":  # which does by masks alone
        return DATA_DEPENDENT
    if not _has_inductor_implementation(op):
        return "no Inductor implementation: compiled code calls the same ATen kernel"
    return None


def _gives_any_shape(op: torch._ops.OpOverload) -> bool:
    tags = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
    return bool(tags & set(op.tags))


def _has_inductor_implementation(op: torch._ops.OpOverload) -> bool:
    # Here and not at the top: it takes seconds, and a recorder has no need of it.
    from torch._inductor.decomposition import decompositions
    from torch._inductor.lowering import lowerings

    implicit = torch._C.DispatchKey.CompositeImplicitAutograd
    # Some are registered for the overload, some for the packet. Of an operator in place, Inductor
    # compiles the one that is not.
    forms: list[object] = [op, op.overloadpacket]
    if op._schema.is_mutable:
        functional = getattr(getattr(torch.ops, op.namespace), op._opname.removesuffix("_"), None)
        forms += [functional, getattr(functional, op._overloadname, None)]
    return op.has_kernel_for_dispatch_key(implicit) or any(
        form in table for form in forms for table in (decompositions, lowerings)
    )


def is_random(op: torch._ops.OpOverload) -> bool:
    """Whether two runs differ by design, so that there is no right answer to compare with."""
    return torch.Tag.nondeterministic_seeded in op.tags
