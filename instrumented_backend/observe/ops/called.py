"""Ops that a program calls from Python: how often is known for all of the run.

Each call of one of PyTorch's functions is counted (`_op_calls.h`), and windows see which ops one
runs. Where all that were seen ran the same, and nothing else runs such an op, there are as many of
it as there were calls, however few of them windows met.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import MethodDescriptorType
from typing import Any

from instrumented_backend.observe.native.methods import entry_of, has_gil
from instrumented_backend.observe.native.structs import CallerRow, FunctionRow
from instrumented_backend.torch_compat.functions import functions


def count_calls(lib: Any) -> None:
    """From here on, where the interpreter's lock is there; the functions do what they did."""
    if not has_gil():
        return
    for function in functions():
        entry = entry_of(function)
        if entry is not None:
            is_method = isinstance(function, MethodDescriptorType)
            lib.op_meter_count_calls(entry.method, None if is_method else entry.vectorcall)


@dataclass(frozen=True)
class Number:
    """Of ops of one name, in all of the run."""

    ops: float
    error: float  # a standard error


@dataclass(frozen=True)
class Called:
    """What is known of all calls from Python."""

    numbers: dict[str, Number] = field(default_factory=dict)  # by the op's name
    unknown: int = 0  # calls of functions of which no window saw one


def called(counted: Iterable[FunctionRow], callers: Iterable[CallerRow]) -> Called:
    rows = {row.function: row for row in counted}
    unseen = {_bare(row.name) for row in rows.values() if not row.seen}
    by_op: defaultdict[bytes, set[int]] = defaultdict(set)
    for caller in callers:
        by_op[caller.name].add(caller.function)
    found = {}
    for name, run_by in by_op.items():
        its_rows = [rows.get(function) for function in run_by]
        if any(row is None or row.differ or not row.seen for row in its_rows):
            continue
        if _bare(name) in unseen:
            continue
        ops = sum(row.calls * Counter(row.ops)[name] for row in its_rows if row is not None)
        seen = min(row.seen for row in its_rows if row is not None)
        # So many of the others may run something else, by Laplace's rule.
        found[name.decode(errors="replace")] = Number(ops, ops / (seen + 2))
    return Called(found, sum(row.calls for row in rows.values() if not row.seen))


def _bare(name: bytes) -> bytes:
    """``aten::mul_`` and ``__mul__`` → ``mul``."""
    return name.rpartition(b"::")[2].strip(b"_")
