"""The user's line of each node of a graph, kept small: for calls that Inductor only names."""

import marshal
import re
import zlib
from typing import TYPE_CHECKING

from instrumented_backend.kernels.sidecar import Anchor
from instrumented_backend.observe.messages.user_code import is_internal

if TYPE_CHECKING:
    import torch

MAX_NODES = 10_000  # of one graph
_FRAME = re.compile(r'^ *File "(?P<file>[^\n]*)", line (?P<line>\d+)', re.MULTILINE)


class NodeLines:
    """Packed, about a byte a node: most graphs are never asked for them."""

    def __init__(self, gm: "torch.fx.GraphModule") -> None:
        places: dict[str, int] = {}
        names: dict[str, int] = {}
        for node in gm.graph.nodes:
            if len(names) == MAX_NODES:
                break
            stack = node.meta.get("stack_trace") if node.op.startswith("call_") else None
            place = _user_line(stack) if stack else None
            if place is not None:
                names[node.name] = places.setdefault(place, len(places))
        self._packed = zlib.compress(marshal.dumps((list(places), names)), level=1)

    def _unpacked(self) -> tuple[list[str], dict[str, int]]:
        places, names = marshal.loads(zlib.decompress(self._packed))
        return places, names

    def of(self, nodes: list[str]) -> str | None:
        """``"file.py:12"``, of the last of the nodes that has one: the op itself comes last."""
        places, names = self._unpacked()
        for node in reversed(nodes):
            if node in names:
                return places[names[node]]
        return None

    def anchors(self) -> dict[str, Anchor]:
        """By line, its first node: where the line is found again when it has moved."""
        places, names = self._unpacked()
        found: dict[str, Anchor] = {}
        for number, (name, place) in enumerate(names.items()):
            found.setdefault(places[place], Anchor(name, number, len(names)))
        return found

    def found_again(self, anchors: dict[str, Anchor]) -> dict[str, str | None]:
        """By line of then, the line of now; None where the node is not in this graph.

        Variables may have new names, and nodes with them: in a graph of as many nodes it is the
        number that counts.
        """
        places, names = self._unpacked()
        in_order = list(names.values())
        found: dict[str, str | None] = {}
        for line, anchor in anchors.items():
            if anchor.nodes == len(in_order) and anchor.number < len(in_order):
                found[line] = places[in_order[anchor.number]]
            else:
                place = names.get(anchor.node)
                found[line] = None if place is None else places[place]
        return found


def _user_line(stack: str) -> str | None:
    frames = [(match["file"], match["line"]) for match in _FRAME.finditer(stack)]
    for file, line in reversed(frames):
        if not is_internal(file):
            return f"{file}:{line}"
    return None
