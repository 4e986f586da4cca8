"""AOTAutograd's function round a compiled graph: what it does besides calling it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aot_function import aot_function
from torch._functorch._aot_autograd.runtime_wrappers import SerializableCompiledFunction

from instrumented_backend.torch_compat import aot


def test_torchs_own() -> None:
    """What it calls, and with what: the list that it has, as it is when it is called."""
    before: list[object] = ["a"]
    function = aot_function(compiled_fn=tuple, params_buffers_flat=before)
    found = aot.boxed(function)
    assert found is not None and found[0] is tuple and found[1] is before
    assert function(1, 2) == ("a", 1, 2)


@pytest.mark.parametrize("cells", [{"compiled_fn": None}, {"params_buffers_flat": ("a",)}])
def test_cells_of_another_kind(cells: dict[str, object]) -> None:
    found = {"compiled_fn": tuple, "params_buffers_flat": [], **cells}
    assert aot.boxed(aot_function(**found)) is None


def around(compiled_fn: Any, params_buffers_flat: list[Any]) -> Iterator[Callable[..., Any]]:
    """Functions with the same cells that do something else."""

    def others_first(*args: Any) -> Any:
        full_args = [*args]
        full_args.extend(params_buffers_flat)
        return compiled_fn(full_args)

    def twice(*args: Any) -> Any:
        compiled_fn([*params_buffers_flat, *args])
        return compiled_fn([*params_buffers_flat, *args])

    def another_result(*args: Any) -> Any:
        return [compiled_fn([*params_buffers_flat, *args])]

    def with_effect(*args: Any) -> Any:
        print(args)
        return compiled_fn([*params_buffers_flat, *args])

    def fails(*args: Any) -> Any:
        return compiled_fn(*params_buffers_flat, *args)

    def takes_a_list(args: list[Any]) -> Any:
        return compiled_fn([*params_buffers_flat, *args])

    yield from (others_first, twice, another_result, with_effect, fails, takes_a_list)


def test_other_functions() -> None:
    others = [len, lambda *args: args, *around(tuple, [1])]
    assert [aot.boxed(other) for other in others] == [None] * len(others)


def serializable(compiled_fn: Callable[..., Any]) -> SerializableCompiledFunction:
    return SerializableCompiledFunction(compiled_fn, bytes)


def boxed_of(compiled_fn: Callable[..., Any]) -> Callable[..., Any]:
    found = aot.boxed(aot_function(compiled_fn=compiled_fn, params_buffers_flat=[]))
    assert found is not None
    return found[0]


def test_what_a_cache_could_keep() -> None:
    """The object only calls what it has been given, which is called without it."""
    kept = serializable(tuple)
    assert boxed_of(kept) is tuple
    assert aot_function(compiled_fn=kept, params_buffers_flat=["a"])(1) == ("a", 1)


def test_objects_of_another_kind() -> None:
    class Other(SerializableCompiledFunction):
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return [super().__call__(*args, **kwargs)]

    other = Other(tuple, bytes)
    assert boxed_of(other) is other


def twice(self: Any, *args: Any) -> Any:
    self.compiled_fn(*args)
    return self.compiled_fn(*args)


def another_result(self: Any, *args: Any) -> Any:
    return [self.compiled_fn(*args)]


def with_effect(self: Any, *args: Any) -> Any:
    print(args)
    return self.compiled_fn(*args)


def another_list(self: Any, args: list[Any]) -> Any:
    return self.compiled_fn([*args])


@pytest.mark.parametrize("method", [twice, another_result, with_effect, another_list, print])
def test_an_object_that_does_more(method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a version of torch that nobody here has seen."""
    monkeypatch.setattr(SerializableCompiledFunction, "__call__", method)
    kept = serializable(tuple)
    assert boxed_of(kept) is kept
