"""Which graph, and which cause, of one report is which of another."""

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from instrumented_backend.compare.functions import Labels, base, file_name, is_resumed
from instrumented_backend.compare.items import Item, fused
from instrumented_backend.records import GraphRecord, KernelRecord, Report

MAX_COMPARED = 200  # graphs of one function that are compared each with each

One = TypeVar("One")


# --- Items --------------------------------------------------------------------------------------


@dataclass
class MatchedItems:
    """``pairs`` are the same cause; the other two are in one report only."""

    pairs: list[tuple[Item, Item]]
    gone: list[Item]
    new: list[Item]
    taken: set[int] = field(default_factory=set)  # of these, identities of those paired since


def match_items(before: Iterable[Item], after: Iterable[Item]) -> MatchedItems:
    """Match items by their keys: all that agree in the surest one, then in the next, and so on."""
    gone, new = list(before), list(after)
    pairs: list[tuple[Item, Item]] = []
    depth = max((len(item.keys) for item in (*gone, *new)), default=0)
    for level in range(depth):
        waiting: dict[str, deque[Item]] = defaultdict(deque)
        for item in gone:
            if level < len(item.keys):
                waiting[item.keys[level]].append(item)
        for item in list(new):
            same = waiting.get(item.keys[level]) if level < len(item.keys) else None
            if same:
                pairs.append((same.popleft(), item))
        taken = {id(one) for pair in pairs for one in pair}
        gone = [item for item in gone if id(item) not in taken]
        new = [item for item in new if id(item) not in taken]
    return MatchedItems(pairs, gone, new)


LIKE_ENOUGH = 0.3  # of the ops on two lines of a function, to take them for one that has changed
MOSTLY = 0.6  # of the ops of two kernels
ALIKE = 1.0  # the same in another function of the file, which has a new name


def match_eager_lines(before: Iterable[Item], after: Iterable[Item]) -> MatchedItems:
    """Lines of eager ops: those of one function that run most nearly the same ops.

    Then those of a function whose file has a new name, and of one that has a new name itself.
    """
    matched = match_items(before, after)
    for key, least in (
        (lambda item: (item.label, file_name(item.file)), LIKE_ENOUGH),
        (lambda item: (item.label,), LIKE_ENOUGH),
        (lambda item: (file_name(item.file),), ALIKE),
    ):
        _pair_lines(matched, key, least)
    return matched


def _pair_lines(matched: MatchedItems, key: Callable[[Item], Hashable], least: float) -> None:
    groups: dict[Hashable, tuple[list[Item], list[Item]]] = {}
    for side, found in enumerate((matched.gone, matched.new)):
        for item in found:
            groups.setdefault(key(item), ([], []))[side].append(item)
    for mine, others in groups.values():
        ranked = sorted(
            (-_shared_ops(one, other), i, j)
            for i, one in enumerate(mine[:MAX_COMPARED])
            for j, other in enumerate(others[:MAX_COMPARED])
        )
        for likeness, i, j in ranked:
            one, other = mine[i], others[j]
            if -likeness >= least:
                _take(matched, one, other)
    _leave_out(matched)


def match_kernels_by_name(matched: MatchedItems) -> None:
    """Pair kernels of which one report has only the name: plain Inductor filled the caches."""
    groups: dict[Hashable, list[Item]] = {}
    for other in matched.new:
        groups.setdefault((other.kind, other.label, other.direction, other.name), []).append(other)
    for one in matched.gone:
        for other in groups.get((one.kind, one.label, one.direction, one.name), []):
            if not (one.fused and other.fused) and _take(matched, one, other):
                break
    _leave_out(matched)


def match_kernels_of_another_torch(matched: MatchedItems) -> None:
    """Pair what is left: kernels that move as many bytes, most of whose ops have the same names.

    Which ops a kernel comes from is written down otherwise by another version of torch.
    """
    gone, new = matched.gone[:MAX_COMPARED], matched.new[:MAX_COMPARED]
    ranked = sorted(
        (-_shared_ops(one, other), i, j)
        for i, one in enumerate(gone)
        for j, other in enumerate(new)
        if (one.kind, one.label, one.direction, one.moved_bytes)
        == (other.kind, other.label, other.direction, other.moved_bytes)
    )
    for likeness, i, j in ranked:
        if -likeness >= MOSTLY:
            _take(matched, gone[i], new[j])
    _leave_out(matched)


def _take(matched: MatchedItems, one: Item, other: Item) -> bool:
    """Pair them, unless one is already; `_leave_out` follows."""
    if matched.taken & {id(one), id(other)}:
        return False
    matched.pairs.append((one, other))
    matched.taken |= {id(one), id(other)}
    return True


def _leave_out(matched: MatchedItems) -> None:
    """What has been paired is neither gone nor new. All at once: there may be very many."""
    matched.gone = [item for item in matched.gone if id(item) not in matched.taken]
    matched.new = [item for item in matched.new if id(item) not in matched.taken]


def _shared_ops(one: Item, other: Item) -> float:
    both = one.ops.keys() | other.ops.keys()
    return len(one.ops.keys() & other.ops.keys()) / len(both) if both else 0.0


# --- Graphs -------------------------------------------------------------------------------------


@dataclass
class GraphPair:
    """One graph in both reports, and what they were matched by."""

    before: GraphRecord
    after: GraphRecord
    by: str  # "function and structure", "function", "structure", "name"


@dataclass
class MatchedGraphs:
    pairs: list[GraphPair]
    gone: list[GraphRecord]
    new: list[GraphRecord]


class _Described:
    """A graph with what it is matched by."""

    def __init__(self, graph: GraphRecord, labels: Labels, kernels: list[KernelRecord]) -> None:
        self.graph = graph
        # The rest of a function, after a break, is another graph than its beginning.
        place = (file_name(graph.file), labels.of_graph(graph), graph.direction)
        self.function = (*place, is_resumed(graph.function))
        self.plain = (base(graph.function), is_resumed(graph.function))
        self.attempt = graph.compile_id.rpartition("/")[2]
        made_of = sorted((str(k.direction), fused(k)) for k in kernels)
        self.ops = {name for _, names in made_of for name in names}
        counts = (graph.ops, graph.forward_ops, graph.backward_ops)
        self.structure = (counts, tuple(made_of)) if made_of or graph.ops else None
        self.size = graph.ops or 0

    def likeness(self, other: "_Described") -> float:
        """How alike two graphs are, from 0 to 1, in their kernels' ops and number of nodes."""
        both = self.ops | other.ops
        shared = len(self.ops & other.ops) / len(both) if both else 1.0
        larger = max(self.size, other.size)
        sized = min(self.size, other.size) / larger if larger else 1.0
        return 0.7 * shared + 0.2 * sized + 0.1 * (self.attempt == other.attempt)


def match_graphs(before: Report, after: Report) -> MatchedGraphs:
    """Match graphs by function and structure, then by function, then by structure, then by name."""
    gone, new = _described(before), _described(after)
    pairs: list[GraphPair] = []

    def take(by: str, key: Callable[[_Described], Hashable | None]) -> None:
        nonlocal gone, new
        found = _pairs(gone, new, key)
        pairs.extend(GraphPair(one.graph, other.graph, by) for one, other in found)
        taken = {id(one) for pair in found for one in pair}
        gone = [one for one in gone if id(one) not in taken]
        new = [one for one in new if id(one) not in taken]

    take("function and structure", lambda one: one.structure and (one.function, one.structure))
    take("function", lambda one: one.function)
    take("structure", lambda one: one.structure)
    take("name", lambda one: one.graph.name)
    take("function in another file", lambda one: one.plain if one.plain[0] != "?" else None)
    order = {id(graph): i for i, graph in enumerate(after.graphs)}
    pairs.sort(key=lambda pair: order[id(pair.after)])
    return MatchedGraphs(pairs, [one.graph for one in gone], [one.graph for one in new])


def _described(report: Report) -> list[_Described]:
    labels = Labels(report)
    kernels: dict[int | None, list[KernelRecord]] = defaultdict(list)
    for kernel in report.kernels:
        kernels[kernel.graph].append(kernel)
    return [_Described(graph, labels, kernels[graph.graph]) for graph in report.graphs]


def _pairs(
    before: Sequence[_Described],
    after: Sequence[_Described],
    key: Callable[[_Described], Hashable | None],
) -> list[tuple[_Described, _Described]]:
    groups: dict[Hashable, tuple[list[_Described], list[_Described]]] = {}
    for side, graphs in enumerate((before, after)):
        for one in graphs:
            value = key(one)
            if value is not None:
                groups.setdefault(value, ([], []))[side].append(one)
    found = []
    for mine, others in groups.values():
        if mine and others:
            found += _most_alike(mine, others)
    return found


def _most_alike(
    mine: list[_Described], others: list[_Described]
) -> list[tuple[_Described, _Described]]:
    if len(mine) * len(others) == 1 or max(len(mine), len(others)) > MAX_COMPARED:
        return list(zip(mine, others, strict=False))
    ranked = sorted(
        (
            (-one.likeness(other), i, j)
            for i, one in enumerate(mine)
            for j, other in enumerate(others)
        ),
    )
    found = []
    left, right = set(range(len(mine))), set(range(len(others)))
    for _, i, j in ranked:
        if i in left and j in right:
            left.remove(i)
            right.remove(j)
            found.append((mine[i], others[j]))
    return found
