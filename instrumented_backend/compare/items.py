"""The single causes behind a report's figures, each with its line and what it cost."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from instrumented_backend.compare.functions import Labels, base, file_name
from instrumented_backend.records import (
    BreakRecord,
    CompiledRecord,
    GraphRecord,
    KernelRecord,
    RecompileRecord,
    Report,
    notes,
)
from instrumented_backend.records import compiled as outcomes
from instrumented_backend.records.causes import GAVE_UP
from instrumented_backend.records.places import place

SEPARATOR = " | "  # between the parts of a key

# Kinds.
BREAK = "break"
SKIPPED = "skipped"
UNCOMPILED = "uncompiled"
RECOMPILE = "recompile"
GRAPH = "graph"
KERNEL = "kernel"
EXTERN = "extern"
EAGER = "eager"
MISS = "cache miss"
BYPASS = "cache bypass"

# Ops that only change how memory is read, and constants: versions of torch name or drop them.
_NOT_COUNTED = frozenset(
    f"aten.{name}"
    for name in (
        *("view", "_unsafe_view", "reshape", "permute", "transpose", "t", "expand", "unsqueeze"),
        *("squeeze", "slice", "select", "alias", "detach", "unbind", "split", "as_strided"),
        *("arange", "scalar_tensor", "full", "full_like"),
    )
)
_NOT_COMPILED = (outcomes.EAGER, outcomes.PARTLY_EAGER, outcomes.RAISED)


@dataclass
class Item:
    """One cause. ``keys`` name it in other runs, the surest first: no line is in them.

    ``count`` is of occurrences: compilations that met a break, recompilations, kernels, eager
    ops. ``cost_s`` is what the report says of its time, None where it says nothing.
    """

    kind: str
    keys: tuple[str, ...]
    text: str
    count: float = 1
    spread: float = 0.0  # of the count; 0 is exact
    function: str | None = None
    file: str | None = None
    line: int | None = None
    source: str | None = None
    cause: str | None = None
    cure: str | None = None
    cost_s: float | None = None
    label: str | None = None  # of the function: `Labels`
    ops: dict[str, int] = field(default_factory=dict)  # that it is made of
    places: list[tuple[str, int | None]] = field(default_factory=list)  # of its source lines
    op_lines: dict[str, list[str]] = field(default_factory=dict)  # those of each op, if known
    fused: list[str] = field(default_factory=list)  # ATen ops in the order of the lines
    graph: int | None = None  # in its report
    direction: str | None = None  # of a kernel, as is the next
    name: str = ""  # without its number
    moved_bytes: int = 0  # in one call of the graph, as far as that is known


def items_of(report: Report) -> list[Item]:
    """All of them, kind by kind."""
    labels = Labels(report)
    return [
        *(item for record in report.breaks for item in _of_break(record)),
        *(_of_compiled(record) for record in report.compiled if record.outcome in _NOT_COMPILED),
        *(_of_recompile(record, labels) for record in report.recompiles),
        *(_of_graph(graph, labels) for graph in report.graphs),
        *_of_kernels(report, labels),
        *_of_eager_lines(report),
        *_of_caches(report.graphs, labels),
    ]


def _key(*parts: object) -> str:
    return SEPARATOR.join(str(part) for part in parts)


# --- Breaks and recompilations ------------------------------------------------------------------


def _of_break(record: BreakRecord) -> Iterator[Item]:
    function, file = base(record.function), file_name(record.file)
    reason = record.headline or record.reason
    cost_s = None if record.eager_time_us is None else record.eager_time_us / 1e6
    file_line = (record.file, record.line)
    if record.called_file is not None:  # the break is in a package; this is the user's own line
        file_line = (record.called_file, record.called_line)
    if record.kind != GAVE_UP:
        keys = [_key(BREAK, file, function, reason, record.source)]
        if record.source:
            keys.append(_key(BREAK, file, record.source))
        keys.append(_key(BREAK, file, function, reason))
        keys.append(_key(BREAK, function, reason, record.source))  # its file has a new name
        yield Item(
            BREAK,
            tuple(keys),
            f"graph break in {function}",
            record.count,
            function=record.function,
            file=file_line[0],
            line=file_line[1],
            source=record.source,
            cause=record.reason,
            cure=record.hint,
            cost_s=cost_s,
            label=function,
        )
    for skipped in record.skipped:
        name = base(skipped.function)
        yield Item(
            SKIPPED,
            (_key(SKIPPED, file_name(skipped.file), name), _key(SKIPPED, name)),
            f"{name} ran eagerly as a whole",
            function=skipped.function,
            # What has to be changed is the break; of a function that was given up, the function.
            file=file_line[0] or skipped.file,
            line=file_line[1] if file_line[0] else skipped.line,
            source=record.source,
            cause=skipped.reason or record.reason,
            cure=record.hint,
            cost_s=cost_s,
            label=name,
        )


def _of_compiled(record: CompiledRecord) -> Item:
    has_place = record.reason_file is not None
    return Item(
        UNCOMPILED,
        (_key(UNCOMPILED, record.name, record.outcome), _key(UNCOMPILED, record.name)),
        f"{record.call} {record.outcome}",
        function=record.target,
        file=record.reason_file if has_place else record.file,
        line=record.reason_line if has_place else record.line,
        cause=record.reason,
        label=record.name,
    )


def _of_recompile(record: RecompileRecord, labels: Labels) -> Item:
    label = labels.of(record.compiled, record.function)
    guard = max(record.guards, key=lambda one: one.count, default=None)
    file, line, source = record.file, record.line, None
    cause, cure = record.reason, None
    keys = [_key(RECOMPILE, label, file_name(record.file))]
    if guard is not None:
        if guard.file is not None:
            file, line, source = guard.file, guard.line, guard.source
        cause = guard.subject
        if guard.values:
            cause += f": {' → '.join(guard.values)}"
        cure = guard.cure
        keys.append(_key(RECOMPILE, guard.kind, guard.subject))
    return Item(
        RECOMPILE,
        tuple(keys),
        f"{label} recompiled",
        record.count,
        function=record.function,
        file=file,
        line=line,
        source=source,
        cause=cause,
        cure=cure,
        cost_s=record.compile_s,
        label=label,
    )


# --- Graphs and kernels -------------------------------------------------------------------------


def _of_graph(graph: GraphRecord, labels: Labels) -> Item:
    label = labels.of_graph(graph)
    file, line = labels.place_of(graph)
    return Item(
        GRAPH,
        (_key(GRAPH, file_name(graph.file), label),),
        f"graph of {label}",
        function=graph.function,
        file=file,
        line=line,
        cost_s=graph.total_compile_s,
        label=label,
    )


def fused(kernel: KernelRecord) -> tuple[str, ...]:
    """What a kernel is made of, views apart; its own name where that is not known."""
    if kernel.language == "extern":
        # The comment above an extern call names its neighbours' ops, too.
        return (kernel.kernel_name,)
    ops = sorted({op for op in kernel.aten_ops if op not in _NOT_COUNTED})
    return tuple(ops) if ops else (_unnumbered(kernel),)


def _unnumbered(kernel: KernelRecord) -> str:
    return kernel.kernel_name.rstrip("0123456789").rstrip("_")


def _of_kernels(report: Report, labels: Labels) -> Iterator[Item]:
    graphs = {graph.graph: graph for graph in report.graphs}
    total_bytes = {graph: 0 for graph in graphs}
    for kernel in report.kernels:
        if kernel.graph in total_bytes:
            total_bytes[kernel.graph] += (kernel.total_bytes or 0) * (kernel.calls or 1)
    for kernel in report.kernels:
        graph = graphs.get(kernel.graph)
        label = labels.of_graph(graph) if graph else "?"
        kind = EXTERN if kernel.language == "extern" else KERNEL
        made_of = fused(kernel)
        name = " + ".join(made_of)
        file, line = _first_line(kernel.places[:1])
        if file is None and graph is not None:
            file, line = labels.place_of(graph)
        yield Item(
            kind,
            (_key(kind, label, kernel.direction, name), _key(kind, kernel.direction, name)),
            kernel.kernel_name if kind == EXTERN else f"kernel of {_short(made_of)}",
            function=graph.function if graph else None,
            file=file,
            line=line,
            cost_s=_kernel_s(kernel, graph, total_bytes.get(kernel.graph, 0)),
            label=label,
            ops=dict.fromkeys(made_of, 1),
            direction=kernel.direction,
            name=_unnumbered(kernel),
            moved_bytes=(kernel.total_bytes or 0) * (kernel.calls or 1),
            places=kernel.places,
            op_lines=kernel.op_lines,
            fused=list(kernel.aten_ops),
        )


def blame(item: Item, known: Collection[str]) -> tuple[str | None, int | None]:
    """The line of the first op in a kernel that no kernel had before, if one can be told.

    Where the report has no lines of single ops: ops and lines are in the same order, each named
    once, so that it is a guess where some stand twice.
    """
    if item.kind == EXTERN or not item.places:
        return item.file, item.line
    for i, op in enumerate(item.fused):
        if op not in known and op not in _NOT_COUNTED:
            if item.op_lines:
                return _first_line([place(line) for line in item.op_lines.get(op, [])])
            return _first_line(item.places[i : i + 1] or item.places[-1:])
    return None, None


def _short(names: tuple[str, ...]) -> str:
    shown = [name.removeprefix("aten.") for name in names[:6]]
    return ", ".join(shown) + (", …" if len(names) > 6 else "")


def _kernel_s(kernel: KernelRecord, graph: GraphRecord | None, graph_bytes: int) -> float | None:
    """Measured, where the report has that; else its share of the graph's bytes."""
    if kernel.device_time_total_us is not None:
        return kernel.device_time_total_us / 1e6
    if graph is None or graph.time_us is None or not graph_bytes or kernel.total_bytes is None:
        return None
    return graph.time_us / 1e6 * kernel.total_bytes * (kernel.calls or 1) / graph_bytes


def _first_line(places: list[tuple[str, int | None]]) -> tuple[str | None, int | None]:
    return next(((file, line) for file, line in places if line is not None), (None, None))


# --- Eager ops ----------------------------------------------------------------------------------


def _of_eager_lines(report: Report) -> Iterator[Item]:
    """The eager ops of each line together."""
    lines: dict[tuple[str | None, int | None, str | None], Item] = {}
    for record in report.ops.missing:
        place = (record.file, record.line, record.function)
        item = lines.get(place)
        if item is None:
            function = base(record.function)
            item = lines[place] = Item(
                EAGER,
                (),
                "eager ops",
                0,
                function=record.function,
                file=record.file,
                line=record.line,
                cost_s=0.0,
                label=function,
            )
        item.count += record.count
        item.spread += record.count_spread or 0.0
        item.cost_s = (item.cost_s or 0.0) + record.time_us / 1e6
        item.ops[record.op] = item.ops.get(record.op, 0) + record.count
    for item in lines.values():
        item.keys = (_key(EAGER, file_name(item.file), item.label, *sorted(item.ops)),)
        most = sorted(item.ops, key=lambda op: -item.ops[op])
        item.text = f"eager ops: {', '.join(most[:3])}{', …' if len(most) > 3 else ''}"
    yield from lines.values()


# --- Caches -------------------------------------------------------------------------------------


def _of_caches(graphs: Iterable[GraphRecord], labels: Labels) -> Iterator[Item]:
    for graph in graphs:
        if graph.cache not in ("miss", "bypass"):
            continue
        label = labels.of_graph(graph)
        file, line = labels.place_of(graph)
        kind = MISS if graph.cache == "miss" else BYPASS
        words = "not in the cache" if kind == MISS else "cannot be cached"
        yield Item(
            kind,
            (_key(kind, file_name(graph.file), label), _key(kind, label)),
            f"graph of {label} {words}",
            function=graph.function,
            file=file,
            line=line,
            cause=graph.cache_reason,
            cost_s=graph.total_compile_s,
            label=label,
            graph=graph.graph,
        )


def kernels_are_known(report: Report) -> bool:
    """Whether each kernel was read, and not found by its name alone."""
    return not any(kernel.coded_notes({notes.NOT_PARSED}) for kernel in report.kernels)
