"""Which call made which autograd node; nodes by hand, autograd's own."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import torch

from instrumented_backend.observe.ops.lines import UNKNOWN, Line
from instrumented_backend.observe.ops.origins import backward_lines, line_of


class Traced:
    """Calls with their results, each on a line of its own, as Dynamo keeps them."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []

    def call(self, name: str, result: Any, *args: Any) -> Any:
        stack = f'  File "/home/me/a.py", line {len(self.nodes) + 1}, in f\n    ...\n'
        self.nodes.append(
            SimpleNamespace(
                op="call_method", target=name, args=args, kwargs={}, stack_trace=stack, value=result
            )
        )
        return result

    def lines(self, *outputs: torch.Tensor) -> dict[int | None, int]:
        counted, pending = [], [tensor.grad_fn for tensor in outputs]
        while pending:
            one = pending.pop()
            if one is None or one in counted or "AccumulateGrad" in one.name():
                continue
            counted.append(one)
            pending += [following for following, _ in one.next_functions]

        def gradients(argument: Any) -> list[Any]:
            value = getattr(argument, "value", argument)
            known = value if isinstance(value, tuple) else (value,)
            return [one.grad_fn for one in known if one.grad_fn is not None]

        found = backward_lines(self.nodes, counted, gradients)
        assert found.total() == len(counted)
        return {line.line: count for line, count in found.items()}


def leaf() -> torch.Tensor:
    return torch.ones(4, requires_grad=True)


def test_one_after_the_other() -> None:
    traced, x = Traced(), leaf()
    y = traced.call("sin", x.sin())
    z = traced.call("softmax", (y * 2).exp())  # two nodes in one call
    traced.call("detach", z.detach())
    assert traced.lines(traced.call("sum", z.sum())) == {1: 1, 2: 2, 4: 1}


def test_changes_in_place() -> None:
    traced, x = Traced(), leaf()
    y = traced.call("add", x + 1)
    z = traced.call("sin", x.sin())
    traced.call("add_", y.add_(z), y)
    traced.call("mul_", y.mul_(2), y)
    w = traced.call("cos", x.cos())
    # Made on lines 1, 2, 3, 4 and 5, though y knows the last of its own only.
    assert traced.lines(traced.call("add", y + w)) == {1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 6: 1}


def test_what_returns_its_argument_made_nothing() -> None:
    traced, x = Traced(), leaf()
    y = traced.call("sin", x.sin())
    traced.call("contiguous", y.contiguous(), y)
    assert traced.lines(traced.call("cos", y.cos())) == {1: 1, 3: 1}


def test_several_results() -> None:
    traced, x = Traced(), leaf()
    first, second = traced.call("chunk", (x * 1).chunk(2))
    assert traced.lines(traced.call("mul", first * second)) == {1: 2, 2: 1}


def test_nodes_of_no_call() -> None:
    x = leaf()
    y = x.sin()
    assert Traced().lines(y) == {None: 1}
    assert backward_lines([], [], lambda argument: []) == Counter()


def test_the_line_is_the_users() -> None:
    linear = torch.nn.modules.linear.__file__
    stack = f'  File "/a.py", line 3, in f\n    y = g(x)\n  File "{linear}", line 9, in forward\n'
    node: Any = SimpleNamespace(stack_trace=stack)
    assert line_of(node) == Line("/a.py", 3, "f")
    assert line_of(SimpleNamespace(stack_trace=None)) == UNKNOWN  # type: ignore[arg-type]
