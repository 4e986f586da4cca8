"""What the op meter would hand out of gaps, written by hand."""

import itertools

from instrumented_backend.observe.native.structs import Seen, TimeRow
from instrumented_backend.observe.ops.cells import Cell
from instrumented_backend.observe.ops.lines import Line
from instrumented_backend.observe.ops.observed import Kind, Mark, Observed, Part

REGION = 1
LONG = 27
S = 10**9


def nothing() -> Part:
    return Part(Seen(), [])


def part(*windows: tuple[float, float, float, float], cells: list[Cell] | None = None) -> Part:
    """Each window's gaps (or seconds), nanoseconds, ops and their nanoseconds."""
    n, ns, ops, op_ns = (sum(window[i] for window in windows) for i in range(4))
    seen = Seen(n, ns, ops, op_ns, len(windows))
    for each_n, each_ns, each_ops, each_op_ns in windows:
        seen.n2 += each_n**2
        seen.ops2 += each_ops**2
        seen.ops_n += each_ops * each_n
        seen.op_ns2 += each_op_ns**2
        seen.op_ns_n += each_op_ns * each_n
        seen.ns2 += each_ns**2
        seen.op_ns_ns += each_op_ns * each_ns
        if each_n == int(each_n):  # gaps, all alike
            seen.each_ops2 += each_ops**2 / each_n
            seen.each_op_ns2 += each_op_ns**2 / each_n
    if cells is None:
        cells = [Cell("aten::add", 0, 0, round(ops), round(op_ns), {})]
    return Part(seen, cells)


_edges = itertools.count(1)


def kind(
    n: int,
    ns: int,
    certain: Part | None = None,
    by_chance: Part | None = None,
    *,
    octave: int = 10,
    slices: Part | None = None,
    certain_slices: Part | None = None,
    mark: int = 0,
    to: int = 1,
    others: tuple[int, int] = (0, 0),
    first: Part | None = None,
    edge: int | None = None,
    cost_ns: int = 0,
    looked: Part | None = None,
    all_lengths: Part | None = None,
    stages: dict[tuple[float, float], Part] | None = None,
    met: Part | None = None,
    ended: Part | None = None,
) -> Kind:
    whole = certain or nothing(), by_chance or nothing()
    in_slices = certain_slices or nothing(), slices or nothing()
    edge = next(_edges) if edge is None else edge
    counts = (n, others[0]), (ns, others[1])
    parts = whole, in_slices, first or nothing()
    beside = ((each or nothing()).seen for each in (looked, all_lengths))
    by_stage = {stage: part.seen for stage, part in (stages or {}).items()}
    single = ((each or nothing()).seen for each in (met, ended))
    return Kind(edge, mark, to, octave, *counts, *parts, cost_ns, *beside, by_stage, *single)


def observed(
    *kinds: Kind,
    whole: bool = False,
    loose: tuple[Part, Part] | None = None,
    elapsed_ns: int = 10**9,
    lines: list[Line] | None = None,
) -> Observed:
    times = TimeRow()
    marks = [Mark(REGION, None, False), Mark(REGION, "enumerate(DataLoader)#It", True)]
    loose = loose or (nothing(), nothing())
    return Observed(marks, list(kinds), loose, {}, times, lines or [], whole, elapsed_ns)
