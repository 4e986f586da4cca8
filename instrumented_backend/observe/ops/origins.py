"""Which of the user's lines the ops of a captured graph come from."""

import functools
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any

from instrumented_backend.observe.messages.reasons import frames, users_frame
from instrumented_backend.observe.ops.lines import UNKNOWN, Line
from instrumented_backend.torch_compat import fx

if TYPE_CHECKING:
    import torch


def line_of(node: "torch.fx.Node") -> Line:
    """The innermost line outside torch and the standard library, as of an eager op."""
    return _line_in(node.stack_trace)


@functools.lru_cache(maxsize=10_000)  # the layers of a model repeat each other
def _line_in(stack: str | None) -> Line:
    frame = users_frame(frames(stack)) if stack else None
    return UNKNOWN if frame is None else Line(frame.file, frame.line, frame.function)


def backward_lines(
    nodes: Iterable["torch.fx.Node"],
    counted: Collection[Any],
    gradients: Callable[[Any], list[Any]],
) -> Counter[Line]:
    """The ``counted`` autograd nodes by the line of the call that made each.

    ``nodes`` are in the order in which Dynamo ran them, and autograd numbers its nodes as they are
    made: one belongs to the first call whose own result has its number or a later one.
    ``gradients`` gives the autograd nodes of what a node, or an argument, stands for.

    Of a tensor that was changed in place, only the last change is known to the tensor. The earlier
    ones are dealt out, in their order, to the calls that gave it.
    """
    if not counted:
        return Counter()
    anchors, robbed = _anchors(nodes, gradients)
    numbers = [number for number, _, _ in anchors]
    between: defaultdict[int, list[int]] = defaultdict(list)  # an anchor's place → numbers
    for one in counted:
        number = fx.sequence_number(one)
        between[bisect_left(numbers, number)].append(number)
    lines: Counter[Line] = Counter()
    for place, found in between.items():
        start = anchors[place - 1][1] if place else -1
        end, line = anchors[place][1:] if place < len(anchors) else (None, UNKNOWN)
        own = sorted(found)
        if place < len(anchors) and own[-1] == anchors[place][0]:
            lines[line] += 1
            own.pop()
        known = [each for at, each in robbed if at > start and (end is None or at < end)]
        lines.update(known[: len(own)])
        lines[line] += max(0, len(own) - len(known))
    return +lines


_Anchor = tuple[int, int, Line]  # autograd's number, the call's place among the calls, its line


def _anchors(
    nodes: Iterable["torch.fx.Node"], gradients: Callable[[Any], list[Any]]
) -> tuple[list[_Anchor], list[tuple[int, Line]]]:
    """Calls whose result tells what they made, in order; and those whose result was changed."""
    calls: list[tuple[Line, list[Any]]] = []
    owner: dict[Any, int] = {}  # autograd node → the call that made it
    for node in nodes:
        if node.op not in ("call_function", "call_method", "call_module"):
            continue
        place, in_place = len(calls), fx.is_in_place(node)
        own = gradients(node)
        if in_place and node.args:
            own = own + gradients(node.args[0])
        for each in own:
            if in_place or each not in owner:
                owner[each] = place
        calls.append((line_of(node), own))
    anchors: list[_Anchor] = []
    robbed = []
    for place in reversed(range(len(calls))):
        line, own = calls[place]
        mine = [fx.sequence_number(each) for each in own if owner[each] == place]
        if mine and (not anchors or max(mine) < anchors[-1][0]):
            anchors.append((max(mine), place, line))
        elif own and any(owner[each] > place for each in own):
            robbed.append((place, line))
    return anchors[::-1], robbed[::-1]
