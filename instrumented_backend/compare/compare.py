"""`compare`: two reports, and what is new, gone and changed between them."""

import statistics
from collections import Counter, defaultdict

from instrumented_backend.compare import items
from instrumented_backend.compare.consequences import CAUSES, without_consequences
from instrumented_backend.compare.difference import (
    CHANGED,
    EXACT,
    FEWER,
    GONE,
    MORE,
    NEW,
    SAMPLED,
    Change,
    Comparison,
    FigureChange,
    MatchedGraph,
    Surroundings,
    TimeChange,
)
from instrumented_backend.compare.figures import FIGURES, ONE_RUN, Figure, Value
from instrumented_backend.compare.functions import Labels, base, is_resumed, program_of
from instrumented_backend.compare.items import Item, items_of, kernels_are_known
from instrumented_backend.compare.kernels import kernel_changes
from instrumented_backend.compare.matching import (
    MatchedGraphs,
    match_eager_lines,
    match_graphs,
    match_items,
)
from instrumented_backend.records import GraphRecord, Report

_COST_OF = {
    items.BREAK: "eager ops",
    items.SKIPPED: "eager ops",
    items.EAGER: "eager ops",
    items.RECOMPILE: "recompiling",
    items.GRAPH: "compiling",
    items.MISS: "compiling",
    items.BYPASS: "compiling",
}
_BY_COUNT = (items.RECOMPILE,)  # an item whose count, and not its presence alone, matters


def compare(before: Report, after: Report, names: tuple[str, str] = ("A", "B")) -> Comparison:
    """``names`` are what the two are called in the result."""
    ours, theirs = items_of(before), items_of(after)
    matched = match_graphs(before, after)
    was_cached = {
        pair.after.graph
        for pair in matched.pairs
        if pair.by == "function and structure" and pair.before.cache == "hit"
    }
    scale = _scale(before, after)
    same_program = program_of(before) == program_of(after)
    changes = [
        *_item_changes(ours, [item for item in theirs if _tells(item, after, was_cached)]),
        *_eager_changes(before, after, ours, theirs, scale),
        *_kernel_changes(before, after, ours, theirs),
    ]
    changes += [_graph_change(graph, GONE, Labels(before)) for graph in matched.gone]
    changes += _new_graphs(matched, before, after)
    changes += [
        _ops_change(pair.before, pair.after)
        for pair in matched.pairs
        if pair.before.ops != pair.after.ops
    ]
    changes = without_consequences(changes, before)
    changes.sort(key=_rank)
    return Comparison(
        *names,
        surroundings=_surroundings(before, after, same_program, scale),
        changes=changes,
        figures=[
            _figure(figure, before, after) for figure in FIGURES.values() if not figure.of_ledger
        ],
        times=[*_phases(before, after), *_ledger(before, after)],
        graphs=[
            MatchedGraph(
                pair.before.graph,
                pair.after.graph,
                pair.before.compile_id,
                pair.after.compile_id,
                pair.after.function,
                pair.by,
                pair.before.ops,
                pair.after.ops,
                pair.before.kernel_count("forward", "backward"),
                pair.after.kernel_count("forward", "backward"),
            )
            for pair in matched.pairs
        ],
    )


# --- What they ran in ---------------------------------------------------------------------------


def _is_warm(report: Report) -> str:
    states = report.caches.graphs
    if not states.hit and not states.miss:
        return "unused"
    return "warm" if not states.miss else "cold" if not states.hit else "partly warm"


def _kernels_known(report: Report) -> str:
    return "all" if kernels_are_known(report) else "some by name only"


def _caches(report: Report) -> str:
    states = report.caches.graphs
    return f"{_is_warm(report)}: {states.hit} graphs found, {states.miss} not"


def _scale(before: Report, after: Report) -> float:
    """How many times as often the same functions' graphs were called: a run may have more steps."""
    was, now = _calls(before), _calls(after)
    ratios = [now[name] / was[name] for name in was if was[name] and now[name]]
    return statistics.median(ratios) if ratios else 1.0


def _calls(report: Report) -> Counter[tuple[str | None, str]]:
    """By function; the rest of one after a break is another."""
    labels = Labels(report)
    calls: Counter[tuple[str | None, str]] = Counter()
    for graph in report.graphs:
        rest = "rest" if is_resumed(graph.function) else None
        calls[rest, labels.of_graph(graph)] += graph.calls
    return calls


def _surroundings(
    before: Report, after: Report, same_program: bool, scale: float
) -> list[Surroundings]:
    command = "command" if same_program else "program"
    pairs: list[tuple[str, str | None, str | None]] = [
        (command, before.run.command, after.run.command),
        ("torch", before.run.torch, after.run.torch),
        ("device", before.run.device, after.run.device),
        ("Python", before.run.python, after.run.python),
        ("rank", str(before.run.rank), str(after.run.rank)),
        ("eager ops observed", before.ops.status, after.ops.status),
        ("kernels known", _kernels_known(before), _kernels_known(after)),
    ]
    found = [Surroundings(what, one, other) for what, one, other in pairs if one != other]
    if scale != 1:
        calls = (str(report.summary.graph_calls) for report in (before, after))
        found.append(Surroundings("graph calls", *calls))
    if _is_warm(before) != _is_warm(after):
        found.append(Surroundings("caches", _caches(before), _caches(after)))
    return found


# --- Items --------------------------------------------------------------------------------------


def _tells(item: Item, after: Report, was_cached: set[int | None]) -> bool:
    """Whether it says more than that a cache was cold, or that the graph has changed."""
    if item.kind != items.MISS:
        return True
    return after.caches.graphs.hit > 0 and item.graph in was_cached


def _item_changes(before: list[Item], after: list[Item]) -> list[Change]:
    """Breaks, skipped functions, what was not compiled, recompilations, caches."""
    ours = [item for item in before if item.kind in (*CAUSES, items.MISS)]
    theirs = [item for item in after if item.kind in (*CAUSES, items.MISS)]
    matched = match_items(ours, theirs)
    changes = [_of_item(item, NEW, None, item.count) for item in matched.new]
    changes += [
        _of_item(item, GONE, item.count, None) for item in matched.gone if item.kind != items.MISS
    ]
    for one, other in matched.pairs:
        if one.kind in _BY_COUNT and one.count != other.count:
            what = MORE if other.count > one.count else FEWER
            changes.append(_of_item(other, what, one.count, other.count))
    return changes


def _of_item(item: Item, what: str, before: float | None, after: float | None) -> Change:
    return Change(
        item.kind,
        what,
        item.text,
        what in (NEW, MORE),
        before,
        after,
        function=item.function,
        file=item.file,
        line=item.line,
        source=item.source,
        cause=item.cause,
        cure=item.cure,
        cost_s=item.cost_s,
        cost_of=_COST_OF.get(item.kind),
    )


def _eager_changes(
    before: Report, after: Report, ours: list[Item], theirs: list[Item], scale: float
) -> list[Change]:
    """Lines that run ops eagerly; where these were sampled, only what is beyond the spreads.

    In a run with ``scale`` times as many calls, a line may run as many times as many ops.
    """
    exact = before.ops.status == after.ops.status == "exact"
    if not exact and not _share_changed(before, after):
        return []
    matched = match_eager_lines(
        [item for item in ours if item.kind == items.EAGER],
        [item for item in theirs if item.kind == items.EAGER],
    )
    known = EXACT if exact else SAMPLED
    changes = []
    for one, what in [(item, NEW) for item in matched.new] + [(i, GONE) for i in matched.gone]:
        if exact or one.count > 2 * one.spread:
            counts = (None, one.count) if what == NEW else (one.count, None)
            change = _of_item(one, what, *counts)
            change.known, change.details = known, _op_counts(one)
            changes.append(change)
    for one, other in matched.pairs:
        expected = one.count * scale
        if abs(other.count - one.count) > one.spread + other.spread and (
            (exact and scale == 1) or not 0.5 < other.count / expected < 2
        ):
            what = MORE if other.count > one.count else FEWER
            change = _of_item(other, what, one.count, other.count)
            change.known, change.details = known, _op_counts(other)
            changes.append(change)
    return changes


def _share_changed(before: Report, after: Report) -> bool:
    values = FIGURES["captured_ops_pct"].read(before), FIGURES["captured_ops_pct"].read(after)
    return _beyond_spread(*values) is True


def _op_counts(item: Item) -> list[str]:
    most = sorted(item.ops.items(), key=lambda op: -op[1])
    return [f"{op} × {count}" for op, count in most[:5]]


def _kernel_changes(
    before: Report, after: Report, ours: list[Item], theirs: list[Item]
) -> list[Change]:
    if not (kernels_are_known(before) and kernels_are_known(after)):
        # Where code was not read for want of time, calls to other kernels are not known.
        ours = [item for item in ours if item.kind != items.EXTERN]
        theirs = [item for item in theirs if item.kind != items.EXTERN]
    return kernel_changes(ours, theirs, before.run.torch == after.run.torch)


# --- Graphs -------------------------------------------------------------------------------------


def _new_graphs(matched: MatchedGraphs, before: Report, after: Report) -> list[Change]:
    """Those of a function that had one, and has as many ops in the new one, are one change.

    Without a guard that failed, somebody made Dynamo forget it: ``torch.compiler.reset()``.
    """
    labels = Labels(after)

    def same(graph: GraphRecord) -> tuple[object, ...]:
        place = (graph.file, graph.line, graph.function, labels.of_graph(graph))
        return *place, graph.direction, graph.ops

    known = Counter(same(pair.after) for pair in matched.pairs)
    again: dict[tuple[object, ...], list[GraphRecord]] = defaultdict(list)
    changes = []
    for graph in matched.new:
        if known[same(graph)]:
            again[same(graph)].append(graph)
        else:
            changes.append(_graph_change(graph, NEW, labels))
    for key, graphs in again.items():
        file, line = labels.place_of(graphs[0])
        seconds = [graph.total_compile_s or 0.0 for graph in graphs]
        changes.append(
            Change(
                items.GRAPH,
                MORE,
                f"graphs of {labels.of_graph(graphs[0])} that are alike",
                True,
                known[key],
                known[key] + len(graphs),
                function=graphs[0].function,
                file=file,
                line=line,
                cause="compiled anew, and no guard failed: for another object, or after a reset",
                cost_s=sum(seconds),
                cost_of="compiling",
            )
        )
    return changes


def _graph_change(graph: GraphRecord, what: str, labels: Labels) -> Change:
    file, line = labels.place_of(graph)
    return Change(
        items.GRAPH,
        what,
        f"graph {graph.compile_id} of {base(graph.function)}"
        + ("" if graph.ops is None else f", {graph.ops} ops"),
        None,
        None if what == NEW else 1,
        None if what == GONE else 1,
        function=graph.function,
        file=file,
        line=line,
        cost_s=graph.total_compile_s,
        cost_of="compiling",
    )


def _ops_change(before: GraphRecord, after: GraphRecord) -> Change:
    return Change(
        items.GRAPH,
        CHANGED,
        f"ops in graph {after.compile_id} of {base(after.function)}",
        None,
        before.ops,
        after.ops,
        function=after.function,
        file=after.file,
        line=after.line,
    )


def _rank(change: Change) -> tuple[int, float]:
    """Worse before neutral before better; causes first; then by cost."""
    if change.worse:
        is_cause = change.kind in (*CAUSES, items.GRAPH)
        tier = 0 if is_cause else 1
    else:
        tier = 2 if change.worse is None else 3
    return tier, -(change.cost_s or 0.0)


# --- Figures ------------------------------------------------------------------------------------


def _beyond_spread(before: Value, after: Value) -> bool | None:
    """None where it cannot be told."""
    if before.value is None or after.value is None:
        return None
    if ONE_RUN in (before.known, after.known):
        return None
    return abs(after.value - before.value) > before.spread + after.spread


def _figure(figure: Figure, before: Report, after: Report) -> FigureChange:
    one, other = figure.read(before), figure.read(after)
    changed = _beyond_spread(one, other)
    worse = None
    if changed and one.value is not None and other.value is not None:
        worse = figure.is_worse(other.value, one.value)
    known = next((value.known for value in (one, other) if value.known != EXACT), EXACT)
    return FigureChange(
        figure.name,
        figure.unit,
        one.value,
        other.value,
        one.spread,
        other.spread,
        known,
        changed,
        worse,
        other.note or one.note,
    )


def _phases(before: Report, after: Report) -> list[TimeChange]:
    """Of compilation."""
    one, other = before.compile.phases, after.compile.phases
    times = [TimeChange("compiling", before.compile.total_s, after.compile.total_s)]
    return times + [
        TimeChange(f"compiling, {name.removesuffix('_s').replace('_', ' ')}", mine, theirs)
        for name in dict.fromkeys((*one, *other))
        for mine, theirs in ((one.get(name), other.get(name)),)
        if mine or theirs
    ]


def _ledger(before: Report, after: Report) -> list[TimeChange]:
    """Rows of the main thread, with what they are uncertain by."""
    sides = [
        {row.row: row for row in report.ledger.rows if row.threads == "main"}
        for report in (before, after)
    ]
    times = []
    for name in dict.fromkeys(row for rows in sides for row in rows):
        one, other = (rows.get(name) for rows in sides)
        times.append(
            TimeChange(
                f"wall time, {name.replace('_', ' ')}",
                one.seconds if one else None,
                other.seconds if other else None,
                (one.spread_s if one else None) or 0.0,
                (other.spread_s if other else None) or 0.0,
            )
        )
    return times
