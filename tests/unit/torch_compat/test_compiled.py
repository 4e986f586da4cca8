"""What `torch.compile` returned: how often it is called."""

import threading
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

from instrumented_backend.torch_compat.compiled import Calls


def nothing() -> None:
    pass


def context_with(*hooks: Callable[[], Callable[[], None]]) -> Any:
    return types.SimpleNamespace(enter_exit_hooks=list(hooks))


def call(context: Any) -> None:
    """As Dynamo's wrapper does."""
    for cleanup in [enter() for enter in context.enter_exit_hooks]:
        cleanup()


def test_torchs_own_hook_is_called_as_before() -> None:
    """And what it returned is called after; no hook comes to them, which costs each call."""
    events: list[str] = []

    def enter() -> Callable[[], None]:
        events.append("enter")
        return lambda: events.append("exit")

    context = context_with(enter)
    calls = Calls(context)
    assert len(context.enter_exit_hooks) == 1 and calls.value == 0
    call(context)
    call(context)
    assert events == ["enter", "exit"] * 2 and calls.value == 2


@pytest.mark.parametrize("number", [0, 1, 2])
def test_with_so_many_hooks_there_are_as_many_or_one(number: int) -> None:
    context = context_with(*[lambda: nothing] * number)
    calls = Calls(context)
    for _ in range(3):
        call(context)
    assert calls.value == 3 and len(context.enter_exit_hooks) == max(1, number)


def test_a_hook_that_fails_is_a_call() -> None:
    def enter() -> Callable[[], None]:
        raise RuntimeError("of torch's")

    context = context_with(enter)
    calls = Calls(context)
    with pytest.raises(RuntimeError, match="of torch's"):
        call(context)
    assert calls.value == 1


def test_calls_inside_of_calls_and_at_once() -> None:
    """The hook may run a compiled function itself; threads may be in it together."""
    inside = threading.Barrier(3)

    def enter() -> Callable[[], None]:
        inside.wait(60)
        return nothing

    context = context_with(enter)
    calls = Calls(context)
    threads = [threading.Thread(target=call, args=(context,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calls.value == 3

    def again() -> Callable[[], None]:
        if counted.value < 3:
            call(recursive)
        return nothing

    recursive = context_with(again)
    counted = Calls(recursive)
    call(recursive)
    assert counted.value == 3


def test_torchs_own_context_has_one_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of `programs/` tell whether its calls are counted."""
    monkeypatch.delenv("TORCHDYNAMO_DISABLE", raising=False)
    context = torch._dynamo.optimize("eager")
    calls = Calls(context)
    call(context)
    assert calls.value == len(context.enter_exit_hooks) == 1
