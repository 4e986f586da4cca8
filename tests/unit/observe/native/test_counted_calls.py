"""Calls of PyTorch's functions from Python: all are counted, and the functions are as they were."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from metering import HOUR_NS, call, later, on_thread, seen

from instrumented_backend.observe.native import structs
from instrumented_backend.observe.native.methods import entry_of
from instrumented_backend.observe.ops.called import Called, called, count_calls
from instrumented_backend.observe.ops.observed import Copied
from instrumented_backend.observe.ops.work import done
from instrumented_backend.torch_compat.functions import functions

X = torch.ones(2)
METHODS = ("__mul__", "add_", "tanh", "view", "data_ptr")


@pytest.fixture
def counting(op_meter: Any) -> Iterator[Any]:
    count_calls(op_meter)
    yield op_meter
    op_meter.op_meter_uncount_calls()


def rows(op_meter: Any) -> dict[str, structs.FunctionRow]:
    """By the function's name."""
    return {row.name.decode(): row for row in Copied.of(op_meter).functions}


def calls(op_meter: Any) -> dict[str, int]:
    return {name: row.calls for name, row in rows(op_meter).items()}


def known(op_meter: Any) -> Called:
    copied = Copied.of(op_meter)
    return called(copied.functions, copied.callers)


def test_each_call_is_counted_whatever_windows_see(counting: Any) -> None:
    for _ in range(3):
        y = X * 2  # a slot of the type
        torch.add(y, 1)
        torch.add(*(y,), **{"other": 1})
        torch.nn.functional.gelu(y)
        y.tanh()
    torch.linalg.norm(X)
    assert calls(counting) == {"__mul__": 3, "add": 6, "gelu": 3, "tanh": 3, "linalg_norm": 1}


def test_what_a_function_gives_is_the_same(counting: Any) -> None:
    assert torch.equal(torch.add(X, 1, alpha=2), X + X + X)
    assert torch.equal(torch.nn.functional.linear(X, torch.eye(2), bias=X), X + X)
    assert X.view(size=(1, 2)).shape == (1, 2)
    for wrong in (lambda: torch.add(X), lambda: X.view("a"), lambda: X.tanh(1)):
        with pytest.raises(TypeError):
            wrong()  # type: ignore[no-untyped-call]
    with pytest.raises(RuntimeError, match="size of tensor"):
        torch.add(torch.ones(2), torch.ones(3))


def test_functions_are_found_where_they_were(op_meter: Any) -> None:
    """PyTorch keeps them in sets, and as keys: Dynamo by which it traces."""
    all_of_them = [function for function in functions() if entry_of(function) is not None]
    before = {function: hash(function) for function in all_of_them}
    count_calls(op_meter)
    try:

        class Made:
            def __init__(self, x: int) -> None:
                self.x = x

        assert all(hash(function) == before[function] for function in all_of_them)
        assert torch.add in before and torch._C._nn.gelu in before
        assert Made(1).x == 1  # Python compares what makes objects with its own
    finally:
        op_meter.op_meter_uncount_calls()


def test_most_of_pytorchs_functions_are_counted(op_meter: Any) -> None:
    """And once each; afterwards what Python calls is what it was."""

    def entries() -> list[tuple[Any, Any]]:
        return [
            (
                structs.MethodDef.from_address(entry.method).ml_meth,
                structs.ctypes.c_void_p.from_address(entry.vectorcall).value,
            )
            for entry in map(entry_of, all_of_them)
            if entry is not None
        ]

    all_of_them = list(functions())
    before = entries()
    count_calls(op_meter)
    counted = entries()
    count_calls(op_meter)
    assert entries() == counted
    changed = sum(old != new for old, new in zip(before, counted, strict=True))
    assert changed > 0.9 * len(before) > 1000
    op_meter.op_meter_uncount_calls()
    assert entries() == before


def test_neither_in_regions_nor_for_the_compiler(counting: Any) -> None:
    call(counting, 1, lambda: X.sin())
    counting.op_meter_quiet(1, True, 0)
    X.cos()
    on_thread(lambda: X.tan())  # while the other is the compiler's
    counting.op_meter_quiet(-1, True, 0)
    X.exp()
    assert calls(counting) == {"tan": 1, "exp": 1}


def test_on_all_threads_from_the_runs_beginning(counting: Any) -> None:
    X.sin()
    counting.op_meter_clear()
    on_thread(lambda: [X.sin() for _ in range(5)])
    X.sin()
    assert calls(counting) == {"sin": 6}


def test_which_ops_a_call_has(counting: Any) -> None:
    counting.op_meter_open(False)
    call(counting, 1)  # of the gap after it, the window sees all
    for _ in range(4):
        X * 2
        torch.nn.functional.linear(X, torch.eye(2))
        X.dim()
    counting.op_meter_close()
    for _ in range(10):
        X * 2
    found = rows(counting)
    assert [name for name in found["__mul__"].ops if name] == [b"aten::mul"]
    assert [name for name in found["linear"].ops if name] == [b"aten::linear"]
    assert not any(found["dim"].ops) and not found["dim"].differ
    assert (found["__mul__"].calls, found["__mul__"].seen) == (14, 4)
    numbers = known(counting).numbers
    assert (numbers["aten::mul"].ops, numbers["aten::linear"].ops) == (14, 4)


def test_calls_that_differ_tell_nothing(counting: Any) -> None:
    """A copy is made only where there is anything to put in order."""
    counting.op_meter_open(False)
    for x in (torch.ones(2, 3), torch.ones(3, 2).T):
        x.contiguous()
    counting.op_meter_close()
    assert rows(counting)["contiguous"].differ
    assert "aten::contiguous" not in known(counting).numbers


def test_an_op_that_something_else_runs_too(counting: Any) -> None:
    counting.op_meter_open(False)
    call(counting, 1)
    for _ in range(2):
        X.cos()
    X.sin()
    torch.ops.aten.sin(X)
    counting.op_meter_close()
    assert list(known(counting).numbers) == ["aten::cos"]


class Doubled(torch.Tensor):
    """Its ``sin`` is ``cos``."""

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> torch.Tensor:
        with torch._C.DisableTorchFunctionSubclass():
            return args[0].cos()  # type: ignore[no-any-return]


def test_an_op_whose_call_is_older_than_the_window(counting: Any) -> None:
    """It is not one that nothing called."""
    counting.op_meter_open(False)
    call(counting, 1)
    for _ in range(2):
        torch.ops.aten.sin(X)  # as if from a call that was under way
    for _ in range(2):
        X.sin()
    counting.op_meter_close()
    assert known(counting).numbers["aten::sin"].ops == 2


def test_an_op_is_of_the_innermost_call(counting: Any) -> None:
    x = torch.ones(2).as_subclass(Doubled)
    counting.op_meter_open(False)
    x.sin()
    counting.op_meter_close()
    found = rows(counting)
    assert not any(found["sin"].ops)
    assert [name for name in found["cos"].ops if name] == [b"aten::cos"]


def test_a_window_that_opens_or_closes_during_a_call(counting: Any) -> None:
    """Sees only some of its ops, and so none."""

    class Opens(torch.Tensor):
        @classmethod
        def __torch_function__(cls, *_: Any, **__: Any) -> None:
            counting.op_meter_open(False)

    class Closes(torch.Tensor):
        @classmethod
        def __torch_function__(cls, *_: Any, **__: Any) -> None:
            counting.op_meter_close()

    X.as_subclass(Opens).sin()
    X.as_subclass(Closes).sin()
    row = rows(counting)["sin"]
    assert (row.calls, row.seen) == (2, 0)


def test_what_no_window_saw_is_looked_at_while_it_is_called(counting: Any) -> None:
    """Chance's is an hour away; a look finds that there are ever more calls."""
    call(counting, 1)
    seen(counting)
    awake = counting.op_meter_awake()
    looking = later(lambda: counting.op_meter_window(HOUR_NS, 1, 1, 1, 1_000_000, HOUR_NS, awake))
    while not rows(counting).get("erfinv", structs.FunctionRow()).seen:
        X.erfinv()
    counting.op_meter_wake()
    looking.join()
    assert known(counting).unknown == 0


def test_a_function_that_is_not_called_is_not_looked_at(counting: Any) -> None:
    X.erfc()
    ops = done(counting).ops
    awake = counting.op_meter_awake()
    looking = threading.Thread(
        target=lambda: counting.op_meter_window(50_000_000, 1, 1, 1, 1_000_000, HOUR_NS, awake)
    )
    looking.start()
    looking.join()
    assert known(counting).unknown == 1 and done(counting).ops == ops


def test_a_function_of_python_has_no_entry() -> None:
    assert all(entry_of(function) is None for function in (lambda: None, int, object()))
    assert entry_of(torch.add) is not None and entry_of(torch.Tensor.dim) is not None
