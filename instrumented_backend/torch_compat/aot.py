"""AOTAutograd's function round a compiled graph, which takes its arguments one by one."""

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

# Private names, by the versions of torch that have them.
NAMES = {"2.11 to 2.15": ("torch._functorch.aot_autograd.aot_module_simplified",)}

# What that function has of others, in the order of its cells, and what it names.
_CELLS = ("compiled_fn", "params_buffers_flat")
_NAMES = {"extend", "AssertionError"}


def boxed(function: Callable[..., Any]) -> tuple[Callable[[list[Any]], Any], list[Any]] | None:
    """What ``function``, of `aot_module_simplified`, calls, and what it puts before its arguments.

    ``function(*args)`` is ``boxed([*before, *args])`` then, and nothing else; None of any other.
    """
    if not isinstance(function, types.FunctionType) or not _only_passes_on(function.__code__):
        return None
    compiled_fn, before = (cell.cell_contents for cell in function.__closure__ or ())
    return (compiled_fn, before) if callable(compiled_fn) and type(before) is list else None


@functools.cache
def _only_passes_on(code: types.CodeType) -> bool:
    """It names nothing else that it could change, and is seen to do that."""
    takes_any = code.co_flags & inspect.CO_VARARGS and not code.co_argcount
    if not takes_any or code.co_freevars != _CELLS or not _NAMES.issuperset(code.co_names):
        return False
    passed: list[list[object]] = []

    def compiled_fn(args: list[object]) -> object:
        passed.append(args)
        return passed

    closure = types.CellType(compiled_fn), types.CellType(["before"])
    function = types.FunctionType(code, {"AssertionError": AssertionError}, closure=closure)
    try:
        return function(1, 2) is passed and passed == [["before", 1, 2]]
    except Exception:  # then it does something else
        return False
