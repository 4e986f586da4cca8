"""What native parts have to know of the interpreter: where it keeps C functions, and its lock."""

import ctypes
import sys
from types import BuiltinFunctionType, MethodDescriptorType
from typing import Any, NamedTuple

from instrumented_backend.observe.native.structs import MethodDef


def has_gil() -> bool:
    """Does whoever runs Python's code have the interpreter to itself?"""
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


_WORD = ctypes.sizeof(ctypes.c_void_p)


class Entry(NamedTuple):
    """Addresses: of its ``PyMethodDef``; of what the object itself is called by."""

    method: int
    vectorcall: int


# In words, behind what all objects begin with, and how many there are: CPython 3.8 and later. An
# object of another size has another layout.
_AT = {BuiltinFunctionType: Entry(0, 4), MethodDescriptorType: Entry(3, 4)}
_WORDS = 5


def entry_of(function: Any) -> Entry | None:
    """None where it has none, or Python keeps it elsewhere."""
    at = _AT.get(type(function))
    if at is None or sys.implementation.name != "cpython":
        return None
    if type(function).__basicsize__ != object.__basicsize__ + _WORDS * _WORD:
        return None
    method_at, vectorcall_at = (id(function) + object.__basicsize__ + words * _WORD for words in at)
    method = ctypes.c_void_p.from_address(method_at).value
    if not method or MethodDef.from_address(method).ml_name != function.__name__.encode():
        return None
    return Entry(method, vectorcall_at)
