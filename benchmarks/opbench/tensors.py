"""Arguments for an operator: logged inputs as random tensors on a device."""

import math
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from opbench.input_log import DTYPES, DtypeName, Inputs, SparseSpec, TensorSpec, TorchName
from opbench.operators import arguments_by_name
from opbench.valid_inputs import Fill, fills

_HALF = ("f16", "bf16")
_FLOATING = (*_HALF, "f32", "f64")
_SHORT = {getattr(torch, name): short for short, name in DTYPES.items()}


class CannotMake(ValueError):
    """No valid tensors can be made for these inputs; the message says why."""


def short_name(dtype: torch.dtype) -> str:
    """``torch.float16`` → ``"f16"``; raises KeyError for what a log has no name for."""
    return _SHORT[dtype]


def torch_dtype(short: str) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, DTYPES[short])
    return dtype


def make_arguments(
    op: torch._ops.OpOverload, inputs: Inputs, dtype: torch.dtype | None, device: str
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Random tensors for one call, the same ones each time; raises `CannotMake`."""
    converted = convert(op, inputs, dtype)
    seed = zlib.crc32(f"{op} {converted}".encode())
    generator = torch.Generator(device).manual_seed(seed)
    try:
        special = fills(op, converted.args, converted.kwargs)
    except (KeyError, IndexError, AttributeError, TypeError, ZeroDivisionError):
        raise CannotMake(f"the arguments are not those of {op._schema}") from None
    except ValueError as error:
        raise CannotMake(str(error)) from None

    def make(name: str, value: Any, place: int | None = None) -> Any:
        match value:
            case TensorSpec():
                return random_tensor(value, special.get((name, place), Fill()), device, generator)
            case SparseSpec():
                raise CannotMake("sparse inputs, which Inductor does not compile")
            case DtypeName(short):
                return torch_dtype(short)
            case TorchName(attribute):
                return getattr(torch, attribute)
            case "cuda" | "cpu" | "meta":
                return device
            case list() | tuple():
                return type(value)(make(name, item, i) for i, item in enumerate(value))
        return value

    by_name = arguments_by_name(op, converted.args)
    if len(by_name) < len(converted.args):
        raise CannotMake(f"more arguments than {op._schema} takes")
    return (
        tuple(make(name, value) for name, value in by_name.items()),
        {name: make(name, value) for name, value in converted.kwargs.items()},
    )


def convert(op: torch._ops.OpOverload, inputs: Inputs, dtype: torch.dtype | None) -> Inputs:
    """Logged inputs at the dtype that is asked for.

    Training is logged in half precision, with some tensors that stay float32 by design. So float16,
    or None, leaves everything as it was logged, bfloat16 takes the place of float16, and float32 of
    every floating-point dtype.
    """
    if dtype is None or dtype == torch.float16:
        return inputs
    short = short_name(dtype)
    from_ = _HALF if dtype == torch.bfloat16 else _FLOATING

    def change(value: Any) -> Any:
        match value:
            case TensorSpec() | SparseSpec() if value.dtype in from_:
                return replace(value, dtype=short)
            case DtypeName(name) if name in from_:
                return DtypeName(short)
            case list() | tuple():
                return type(value)(map(change, value))
        return value

    args = tuple(map(change, inputs.args))
    # A softmax that was asked to widen half precision has nothing to widen any more.
    named = arguments_by_name(op, args)
    if short == "f32" and named.get("half_to_float") is True:
        args = tuple({**named, "half_to_float": False}.values())
    return Inputs(args, {name: change(value) for name, value in inputs.kwargs.items()})


def specs(inputs: Inputs) -> Iterator[TensorSpec]:
    """The strided tensors among the inputs."""
    waiting: list[Any] = [*inputs.args, *inputs.kwargs.values()]
    while waiting:
        value = waiting.pop(0)
        if isinstance(value, TensorSpec):
            yield value
        elif isinstance(value, list | tuple):
            waiting[:0] = value


def input_bytes(inputs: Inputs) -> int:
    """Memory that the tensors among the inputs take."""
    return sum(spec.extent * torch_dtype(spec.dtype).itemsize for spec in specs(inputs))


def random_tensor(
    spec: TensorSpec, fill: Fill, device: str, generator: torch.Generator
) -> torch.Tensor:
    """A tensor with the spec's strides, in memory of its own; never all zeros."""
    dtype = torch_dtype(spec.dtype)
    ordered = fill.unique_dim is not None or fill.true_count is not None or fill.ascending
    if ordered:
        content = _ordered(spec, fill, device, generator).to(dtype)
        if spec.stride is None:
            return content
        out = torch.empty_strided(spec.shape, spec.stride, dtype=dtype, device=device)
        return out.copy_(content)
    # Strides may overlap (expanded tensors), so the memory is filled, and then looked at.
    memory = _values(spec.extent, dtype, fill, device, generator)
    if spec.stride is None:
        return memory.view(spec.shape)
    return memory.as_strided(spec.shape, spec.stride)


def _values(
    count: int, dtype: torch.dtype, fill: Fill, device: str, generator: torch.Generator
) -> torch.Tensor:
    options: dict[str, Any] = {"device": device, "generator": generator}
    if dtype == torch.bool:
        return torch.randint(0, 2, (count,), dtype=torch.uint8, **options).view(torch.bool)
    if dtype.is_complex:
        real = torch.complex64 if dtype == torch.complex32 else dtype
        return torch.randn(count, dtype=real, **options).to(dtype)
    if not dtype.is_floating_point:
        high = min(fill.high, torch.iinfo(dtype).max)
        return torch.randint(fill.low, max(high, fill.low + 1), (count,), dtype=dtype, **options)
    if fill.probability:
        return torch.rand(count, dtype=dtype, **options)
    values = torch.randn(count, dtype=dtype, **options)
    return values.abs_().add_(0.1) if fill.positive else values


def _ordered(spec: TensorSpec, fill: Fill, device: str, generator: torch.Generator) -> torch.Tensor:
    options: dict[str, Any] = {"device": device, "generator": generator}
    shape, count = spec.shape, math.prod(spec.shape)
    if fill.true_count is not None:
        if fill.true_count > count:
            raise CannotMake(f"a mask of {count} elements can't select {fill.true_count} values")
        chosen = torch.randperm(count, **options) < fill.true_count
        return chosen.view(shape)
    if fill.ascending:
        offsets = torch.randint(fill.low, fill.high, shape, **options).sort().values
        offsets[:1] = 0
        return offsets
    if fill.unique_dim == -1:
        return torch.randperm(fill.high, **options)[:count].view(shape)
    # As many different numbers below ``high`` as there are places along the dimension.
    dim = fill.unique_dim or 0
    shape = shape or (1,)
    wide = (*shape[:dim], fill.high, *shape[dim + 1 :])
    order = torch.rand(wide, **options).argsort(dim=dim)
    return order.narrow(dim, 0, shape[dim]).contiguous().view(spec.shape)


def to_channels_last(value: Any) -> Any:
    """4-dimensional tensors among the arguments in channels-last memory format."""
    return map_tensors(
        lambda tensor: tensor.to(memory_format=torch.channels_last) if tensor.ndim == 4 else tensor,
        value,
    )


def clone(value: Any) -> Any:
    """The arguments with tensors of their own, strides kept (overlapping ones too)."""

    def copy(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.numel() == 0:
            return tensor.clone()
        length = 1 + sum(
            (size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True)
        )
        memory = tensor.as_strided((length,), (1,)).clone()
        return memory.as_strided(tensor.shape, tensor.stride())

    return map_tensors(copy, value)


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors among arguments or results, in order."""
    found: list[torch.Tensor] = []
    map_tensors(lambda tensor: found.append(tensor) or tensor, value)  # type: ignore[func-returns-value]
    return found


def map_specs(change: Callable[[TensorSpec], Any], value: Any) -> Any:
    """Arguments of a log on the CPU: each strided tensor replaced, and names by what they name."""
    match value:
        case TensorSpec():
            return change(value)
        case DtypeName(short):
            return torch_dtype(short)
        case TorchName(attribute):
            return getattr(torch, attribute)
        case "cuda":
            return "cpu"
        case list() | tuple():
            return type(value)([map_specs(change, item) for item in value])
        case dict():
            return {key: map_specs(change, item) for key, item in value.items()}
    return value


def map_tensors(change: Callable[[torch.Tensor], Any], value: Any) -> Any:
    """Arguments or results with each tensor replaced."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, list | tuple):
        return type(value)([map_tensors(change, item) for item in value])
    if isinstance(value, dict):
        return {key: map_tensors(change, item) for key, item in value.items()}
    return value
