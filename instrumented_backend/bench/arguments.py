"""Random arguments of given shapes and strides; integers stay where they are valid as indices."""

import ast
from collections.abc import Callable, Mapping
from typing import Any

import torch

from instrumented_backend.kernels.index_bounds import index_bounds, may_tell
from instrumented_backend.kernels.parse import GraphSource
from instrumented_backend.kernels.wrapper import Size, Tensor

# Values of integers of which no use as an index is known: valid in any dimension but of size 1.
UNKNOWN_BOUND = 2
_MAX_SMALL = 128  # for 8-bit integers, which hold quantised data or bytes


def random_strided(
    size: tuple[int, ...],
    stride: tuple[int, ...],
    dtype: torch.dtype = torch.float32,
    device: Any = "cpu",
    extra_size: int = 0,
    *,
    bound: int | None = None,
) -> torch.Tensor:
    """A tensor of random data: normal, or integers from 0 up to ``bound`` (exclusive).

    It may be taken for ``torch._dynamo.testing.rand_strided``, which makes all integers zero.
    """
    count = extra_size
    if all(length > 0 for length in size):
        count += 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    return torch.as_strided(_random(count, dtype, device, bound), size, stride)


def _random(count: int, dtype: torch.dtype, device: Any, bound: int | None) -> torch.Tensor:
    if dtype is torch.bool:
        return torch.randint(0, 2, (count,), dtype=torch.uint8, device=device).to(dtype)
    if dtype.is_floating_point and dtype.itemsize == 1:
        return torch.randn(count, dtype=torch.float16, device=device).to(dtype)
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(count, dtype=dtype, device=device)
    top = bound
    if top is None:
        top = _MAX_SMALL if dtype.itemsize == 1 else UNKNOWN_BOUND
    if dtype in (torch.uint16, torch.uint32, torch.uint64):
        return torch.randint(0, min(top, 1 << 15), (count,), device=device).to(dtype)
    top = max(1, min(top, torch.iinfo(dtype).max))
    return torch.randint(0, top, (count,), dtype=dtype, device=device)


def input_bounds(graph: GraphSource) -> dict[str, int]:
    """For each of the graph's buffers that some kernel takes indices from, how many are valid."""
    bounds: dict[str, int] = {}
    for call in graph.calls:
        source = graph.sources.get(call.kernel, "")
        if not may_tell(source):
            continue
        facts = graph.facts(call.kernel)
        passed = dict(zip(facts.parameters, call.arguments, strict=False))
        sizes = {
            name: value.known
            for name, value in passed.items()
            if isinstance(value, Size) and value.known is not None
        }
        for pointer, found in index_bounds(source, facts.accesses).items():
            buffer = passed.get(pointer)
            for bound in found:
                count = bound.values(sizes)
                if isinstance(buffer, Tensor) and count is not None:
                    bounds[buffer.name] = min(count, bounds.get(buffer.name, count))
    return bounds


def names_in_order(text: str) -> list[set[str]]:
    """The names that each ``rand_strided`` call in ``get_args`` gives to its tensor, in order.

    Inputs that share a storage are views of one tensor.
    """
    function = _function(text, "get_args") or _function(text, "benchmark_compiled_module")
    made: list[set[str]] = []
    by_name: dict[str, set[str]] = {}
    for node in ast.walk(function) if function is not None else ():
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        target, call = node.targets[0], node.value
        if not isinstance(target, ast.Name):
            continue
        called = ast.unparse(call.func)
        if called == "rand_strided":
            by_name[target.id] = {target.id}
            made.append(by_name[target.id])
        elif called == "torch.as_strided" and call.args and isinstance(call.args[0], ast.Name):
            by_name.get(call.args[0].id, set()).add(target.id)
    return made


def _function(text: str, name: str) -> ast.FunctionDef | None:
    start = text.rfind(f"\ndef {name}(")
    if start < 0:
        return None
    lines = text[start + 1 :].split("\n")
    end = next((i for i, line in enumerate(lines[1:], 1) if line[:1].strip()), len(lines))
    node = ast.parse("\n".join(lines[:end])).body[0]
    return node if isinstance(node, ast.FunctionDef) else None


def in_range(names: list[set[str]], bounds: Mapping[str, int]) -> Callable[..., torch.Tensor]:
    """A ``rand_strided`` for the calls of one ``get_args``, whose names are given in order."""
    remaining = iter(names)

    def rand_strided(*args: Any, **kwargs: Any) -> torch.Tensor:
        known = [bounds[name] for name in next(remaining, ()) if name in bounds]
        return random_strided(*args, **kwargs, bound=min(known, default=None))

    return rand_strided
