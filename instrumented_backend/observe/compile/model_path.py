"""The name of a module in its model: ``Model.blocks.3``."""

import inspect
import itertools
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch

from instrumented_backend.observe.messages.call_site import callers
from instrumented_backend.observe.messages.user_code import is_internal

MAX_FRAMES, MAX_CALLERS = 300, 30  # of the stack; of them the program's own
MAX_MODULES = 20_000  # of one model
_WRAPPED = "_orig_mod"  # the module inside what torch.compile returned


def model_path(module: torch.nn.Module, frame: FrameType | None) -> str:
    """Its name in the model that the callers' variables hold, the largest of the nearest caller.

    It is the name of its class where none of them has it.
    """
    frames = itertools.islice(callers(frame), MAX_FRAMES)
    own = (caller for caller in frames if not is_internal(caller.f_code.co_filename))
    for caller in itertools.islice(own, MAX_CALLERS):
        paths = [path for root in _modules_of(caller) if (path := _path(root, module)) is not None]
        if any(paths):
            return max(paths, key=len)
    return type(module).__name__


def contains(root: torch.nn.Module, module: torch.nn.Module) -> bool:
    return root is module or _path(root, module) is not None


def _path(root: torch.nn.Module, module: torch.nn.Module) -> str | None:
    """None where ``module`` is not in ``root``, or is all of it."""
    root = _children(root).get(_WRAPPED) or root
    stack = [(root, type(root).__name__)]
    for _ in range(MAX_MODULES):
        if not stack:
            return None
        parent, path = stack.pop()
        if parent is module:
            return path if parent is not root else None
        for name, child in _children(parent).items():
            if child is not None:
                stack.append((child, path if name == _WRAPPED else f"{path}.{name}"))
    return None


def _children(module: torch.nn.Module) -> dict[str, torch.nn.Module | None]:
    # Not by attribute: the program may have its own way with them.
    return vars(module).get("_modules") or {}


def _modules_of(frame: FrameType) -> list[torch.nn.Module]:
    """Those in its variables, in its globals, and in the attributes of ``self``."""
    found = list(_modules_in(frame.f_globals))
    if frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        scope = frame.f_locals
        found += _modules_in(scope)
        found += _modules_in(getattr(scope.get("self"), "__dict__", {}))
        # Until Python 3.13 the frame keeps this copy, and with it all that the function deletes;
        # unless the program asked for it, too, nobody misses what is in it.
        if sys.version_info < (3, 13) and sys.getrefcount(scope) <= 3:
            scope.clear()
    return found


def _modules_in(scope: Any) -> Iterator[torch.nn.Module]:
    # Not by isinstance, which asks the object.
    return (value for value in list(scope.values()) if issubclass(type(value), torch.nn.Module))
