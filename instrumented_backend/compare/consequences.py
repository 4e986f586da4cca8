"""What follows from what: a change that another one brings with it is told with it."""

from collections import defaultdict
from collections.abc import Iterable

from instrumented_backend.compare import items
from instrumented_backend.compare.difference import MORE, NEW, Change
from instrumented_backend.compare.functions import base, resumed_at
from instrumented_backend.records import Report

# What has a cause of its own comes before what may follow from it.
CAUSES = (items.SKIPPED, items.BREAK, items.UNCOMPILED, items.RECOMPILE, items.BYPASS)
MAX_CAUSES = 200
_COSTS_APART = (items.RECOMPILE, items.EAGER)  # what compiling a graph takes is in the former


def without_consequences(changes: list[Change], before: Report) -> list[Change]:
    """A new break brings graphs, kernels and eager ops with it: they are told with the break.

    What is in the rest of the function after that very break follows from it, recompilations
    included. Graphs and kernels of a function follow from any new cause in the function.
    """
    # Each change looks through them: there may be very many.
    causes = [one for one in changes if one.worse and one.kind in CAUSES][:MAX_CAUSES]
    compiled = {(graph.file, base(graph.function)) for graph in before.graphs}
    anew = [one for one in changes if one.kind == items.GRAPH and one.what in (NEW, MORE)]
    anew = anew[:MAX_CAUSES]
    by_function: dict[str, list[Change]] = defaultdict(list)
    for cause in causes:
        by_function[base(cause.function)].append(cause)
    kept = []
    for change in changes:
        reason = _cause_of(change, causes, by_function.get(base(change.function), []), anew)
        if reason is None and (change.file, base(change.function)) not in compiled:
            reason = _made_apart(change, causes)
        if reason is None or reason is change:
            kept.append(change)
            continue
        reason.follows.append(_told(change))
        if change.worse and change.kind in _COSTS_APART:
            reason.cost_s = (reason.cost_s or 0.0) + (change.cost_s or 0.0)
            reason.cost_of = "with what follows"
    return kept


def _cause_of(
    change: Change, causes: Iterable[Change], near: list[Change], anew: list[Change]
) -> Change | None:
    line = resumed_at(change.function)
    for cause in near:
        if line is not None and cause.kind == items.BREAK and cause.line == line:
            return cause
    if change.kind in (items.GRAPH, items.KERNEL) and near:
        return near[0]
    if change.kind == items.KERNEL and change.worse:
        # The kernels of a graph that is there once more, or of a function that had none.
        same = [one for one in anew if one.function == change.function]
        return next((one for one in same if one.what == MORE or not change.before), None)
    if change.kind == items.UNCOMPILED:
        for cause in causes:
            if cause.kind == items.SKIPPED and cause.cause == change.cause:
                return cause
        return next((c for c in near if c.kind in (items.SKIPPED, items.BREAK)), None)
    if change.kind == items.EAGER:
        for cause in causes:
            in_skipped = cause.kind == items.SKIPPED and base(cause.function) == base(
                change.function
            )
            if in_skipped or (cause.file, cause.line) == (change.file, change.line):
                return cause
    return None


def _made_apart(change: Change, causes: Iterable[Change]) -> Change | None:
    """A function that was a part of another's graph is compiled, and recompiled, by itself where
    that other one runs eagerly as a whole.
    """
    if change.kind != items.RECOMPILE or change.what != NEW:
        return None
    return next((cause for cause in causes if cause.kind == items.SKIPPED), None)


def _told(change: Change) -> str:
    if change.before is not None and change.after is not None:
        return f"{change.text}: {change.before:g} → {change.after:g}"
    return f"{change.what}: {change.text}"
