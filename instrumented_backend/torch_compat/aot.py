"""AOTAutograd's frames round a compiled graph, which only pass on what it is given."""

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

# Private names, by the versions of torch that have them.
NAMES = {
    "2.11 to 2.15": (
        "torch._functorch.aot_autograd.aot_module_simplified",
        "torch._functorch._aot_autograd.runtime_wrappers.SerializableCompiledFunction.__call__",
    )
}

# What the function there has of others, in the order of its cells, and what it names.
_CELLS = ("compiled_fn", "params_buffers_flat")
_NAMES = {"extend", "AssertionError"}


def boxed(function: Callable[..., Any]) -> tuple[Callable[[list[Any]], Any], list[Any]] | None:
    """What ``function``, of `aot_module_simplified`, calls, and what it puts before its arguments.

    ``function(*args)`` is ``boxed([*before, *args])`` then, and nothing else; None of any other.
    """
    if not isinstance(function, types.FunctionType) or not _only_passes_on(function.__code__):
        return None
    compiled_fn, before = (cell.cell_contents for cell in function.__closure__ or ())
    if not callable(compiled_fn) or type(before) is not list:
        return None
    return _called_by(compiled_fn), before


def _called_by(compiled_fn: Any) -> Callable[[list[Any]], Any]:
    """What is called by an object that AOTAutograd's cache could keep; itself, if it is another."""
    from torch._functorch._aot_autograd import runtime_wrappers

    kind = getattr(runtime_wrappers, "SerializableCompiledFunction", None)
    passes_on = kind is not None and type(compiled_fn) is kind and _only_calls(kind.__call__)
    called: Callable[[list[Any]], Any] = compiled_fn.compiled_fn if passes_on else compiled_fn
    return called


@functools.cache
def _only_passes_on(code: types.CodeType) -> bool:
    """It names nothing else that it could change, and is seen to do that."""
    takes_any = code.co_flags & inspect.CO_VARARGS and not code.co_argcount
    if not takes_any or code.co_freevars != _CELLS or not _NAMES.issuperset(code.co_names):
        return False

    def on(compiled_fn: object) -> object:
        closure = types.CellType(compiled_fn), types.CellType(["before"])
        return types.FunctionType(code, {"AssertionError": AssertionError}, closure=closure)(1, 2)

    return _passed_once(on) == ["before", 1, 2]


@functools.cache
def _only_calls(method: Callable[..., Any]) -> bool:
    """It names nothing but what it calls, and is seen to do that."""
    code = getattr(method, "__code__", None)
    if code is None or code.co_freevars or code.co_names != ("compiled_fn",):
        return False
    given = [1]
    return _passed_once(lambda fn: method(types.SimpleNamespace(compiled_fn=fn), given)) is given


def _passed_once(on: Callable[[object], object]) -> list[object] | None:
    """The list that ``on`` of a function calls that with; None unless it returns what that does."""
    passed: list[list[object]] = []

    def compiled_fn(args: list[object]) -> object:
        passed.append(args)
        return passed

    try:
        returned = on(compiled_fn)
    except Exception:  # then it does something else
        return None
    return passed[0] if returned is passed and len(passed) == 1 else None
