"""Torch's own function round a compiled graph, round something else."""

import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any

from torch._functorch.aot_autograd import aot_module_simplified


def aot_function(**cells: object) -> Callable[..., Any]:
    """``compiled_fn``, and ``params_buffers_flat`` before its arguments."""
    (code,) = (
        code
        for code in _codes(aot_module_simplified.__code__)
        if code.co_name == "forward" and code.co_flags & inspect.CO_VARARGS
    )
    closure = tuple(types.CellType(cells[name]) for name in code.co_freevars)
    return types.FunctionType(code, {"AssertionError": AssertionError}, closure=closure)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)
