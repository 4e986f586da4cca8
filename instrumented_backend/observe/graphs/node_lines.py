"""The user's line of each node of a graph, kept small: for calls that Inductor only names."""

import marshal
import re
import zlib
from typing import TYPE_CHECKING

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

    def of(self, nodes: list[str]) -> str | None:
        """``"file.py:12"``, of the last of the nodes that has one: the op itself comes last."""
        places, names = marshal.loads(zlib.decompress(self._packed))
        for node in reversed(nodes):
            if node in names:
                return str(places[names[node]])
        return None


def _user_line(stack: str) -> str | None:
    frames = [(match["file"], match["line"]) for match in _FRAME.finditer(stack)]
    for file, line in reversed(frames):
        if not is_internal(file):
            return f"{file}:{line}"
    return None
