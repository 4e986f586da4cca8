"""The user's line of each node of a graph, kept small: kernels are made of nodes."""

import functools
import hashlib
import marshal
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import TYPE_CHECKING

from instrumented_backend.kernels.sidecar import GraphLines
from instrumented_backend.observe.messages.reasons import frames, last_frame, users_frame
from instrumented_backend.torch_compat.fx import graphs_in

if TYPE_CHECKING:
    import torch

MAX_NODES = 10_000  # of one graph
_NO_PLACE = -1


class NodeLines:
    """Packed, a few bytes a node: most graphs are never asked for them."""

    def __init__(self, gm: "torch.fx.GraphModule") -> None:
        places: dict[str, int] = {}
        of_nodes: list[int] = []
        names: list[str] = []
        kinds = hashlib.blake2b(digest_size=16)
        for node in chain.from_iterable(graph.nodes for graph in graphs_in(gm)):
            if not node.op.startswith("call_"):
                continue
            kinds.update(f"{node.op} {_called(node.target)}\n".encode(errors="replace"))
            if len(names) < MAX_NODES:
                place = line_of_stack(node.meta.get("stack_trace"))
                names.append(node.name)
                of_nodes.append(
                    _NO_PLACE if place is None else places.setdefault(place, len(places))
                )
        self.files = frozenset(place.rpartition(":")[0] for place in places)
        self._kinds = kinds.hexdigest()
        self._packed = zlib.compress(marshal.dumps((list(places), of_nodes, names)), level=1)

    def _unpacked(self) -> tuple[list[str], list[int], list[str]]:
        unpacked: tuple[list[str], list[int], list[str]] = marshal.loads(
            zlib.decompress(self._packed)
        )
        return unpacked

    def by_name(self) -> dict[str, str]:
        """``"file.py:12"`` of each node that has a line.

        Nested graphs have names of their own: of those that mean several lines, none is told.
        """
        places, of_nodes, names = self._unpacked()
        found: defaultdict[str, set[int]] = defaultdict(set)
        for name, number in zip(names, of_nodes, strict=True):
            if number != _NO_PLACE:
                found[name].add(number)
        return {name: places[min(known)] for name, known in found.items() if len(known) == 1}

    def kept(self, inductors: Mapping[str, str]) -> GraphLines:
        """What another program with this graph needs to find its own lines.

        ``inductors``: the lines of the nodes of the graph that Inductor was given.
        """
        places, of_nodes, _ = self._unpacked()
        known = {place: number for number, place in enumerate(places)}
        named = {name: known[place] for name, place in inductors.items() if place in known}
        return GraphLines(self._kinds, places, of_nodes, named)

    def own_places(self, kept: GraphLines) -> dict[str, list[str]]:
        """For each place of the program that compiled this graph, those of this program.

        Caches know a graph by what it computes: another program, or this one before it was edited,
        may have compiled it, from other lines. Empty where that was another graph to Dynamo.
        """
        places, of_nodes, _ = self._unpacked()
        if kept.kinds != self._kinds or len(kept.of_nodes) != len(of_nodes):
            return {}
        own: defaultdict[str, dict[str, None]] = defaultdict(dict)
        for then, now in zip(kept.of_nodes, of_nodes, strict=True):
            if now != _NO_PLACE and 0 <= then < len(kept.places):
                own[kept.places[then]][places[now]] = None
        return {place: list(found) for place, found in own.items()}


def _called(target: object) -> str:
    """The same in each process."""
    if isinstance(target, str):
        return target
    return str(getattr(target, "__name__", type(target).__name__))


def lines_of_nodes(nodes: Iterable["torch.fx.Node"]) -> dict[str, str]:
    """The same of any graph, by name, at most `MAX_NODES`."""
    lines: dict[str, str] = {}
    for node in nodes:
        line = line_of_stack(node.meta.get("stack_trace"))
        if line is not None and len(lines) < MAX_NODES:
            lines[node.name] = line
    return lines


@functools.lru_cache(maxsize=64)  # nodes of one line follow each other
def line_of_stack(stack: str | None) -> str | None:
    """``"/path/model.py:12"``: the last frame of a formatted stack that is not torch's."""
    if not stack:
        return None
    frame = users_frame(last_frame(stack))  # mostly that is it
    if frame is None or frame.file.startswith("<"):
        frame = users_frame(frames(stack))
    return None if frame is None else f"{frame.file}:{frame.line}"
