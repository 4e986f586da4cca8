"""How often what the op meter's windows saw happened: what stands for which gaps.

Gaps seen in certain windows stand for themselves: first steps allocate optimizer state and load
kernels. For the others of their kind stand those that random windows saw, as many times as there
were others; or, where these saw too few, those of certain windows; or gaps of the nearest length.
Long gaps were seen in slices, which stand for as much more time as the gaps lasted.

A kind of gap is from where to where, which octave its length is in, and where in the program's
loop it is: a step with an evaluation after it is none like the others, nor is a graph's second call
in a step like its first, and a loop whose steps are all alike comes out exactly. Positions of which
too few were seen are taken together.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from instrumented_backend.observe.native.build import Seen
from instrumented_backend.observe.ops.observed import Cell, Kind, Observed, Part

SPREAD = 2.0  # standard errors, to either side
LONG = 27  # from this octave on, gaps are seen in slices; `_op_state.h` says the same
SKEW = 1.15  # what windows see is spread less evenly than Student's t has it
ENOUGH = 3  # gaps in random windows, for those of certain windows not to be needed
# For few windows, twice the standard error is less than 19 in 20 (Student's t).
_STUDENT = (12.7, 4.3, 3.2, 2.8, 2.6, 2.45, 2.4, 2.3, 2.3)


@dataclass(frozen=True)
class Scaled:
    """A part that stands for more than itself: how many times, its ops and their time."""

    part: Part
    ops_factor: float
    ns_factor: float
    ops_variance: float = 0.0
    ns_variance: float = 0.0

    @property
    def ops(self) -> float:
        return float(self.part.seen.ops * self.ops_factor)

    @property
    def ns(self) -> float:
        return float(self.part.seen.op_ns * self.ns_factor)


@dataclass
class Group:
    """Gaps of one kind, wherever in the program's loop they were: `kinds` has these apart."""

    to: int
    octave: int
    kinds: list[Kind] = field(default_factory=list)

    @cached_property
    def n(self) -> tuple[int, int]:
        return sum(kind.n[0] for kind in self.kinds), sum(kind.n[1] for kind in self.kinds)

    @cached_property
    def ns(self) -> tuple[int, int]:
        return sum(kind.ns[0] for kind in self.kinds), sum(kind.ns[1] for kind in self.kinds)

    @cached_property
    def first(self) -> Part:
        return _together(kind.first for kind in self.kinds)

    @cached_property
    def certain(self) -> Part:
        return _together(kind.whole[0] for kind in self.kinds)

    @cached_property
    def random(self) -> Part:
        return _together(kind.whole[1] for kind in self.kinds)

    @cached_property
    def slices(self) -> tuple[Part, Part]:
        certain, random = (_together(kind.slices[i] for kind in self.kinds) for i in range(2))
        return certain, random


def _together(parts: Iterable[Part]) -> Part:
    """What several kinds of gap are, taken as one."""
    parts = [part for part in parts if part.seen.n or part.cells]
    if len(parts) == 1:
        return parts[0]
    seen = Seen()
    cells: dict[tuple[int, int], Cell] = {}
    for part in parts:
        seen.add(part.seen)
        for cell in part.cells:
            known = cells.get((cell.mark, cell.slot))
            cells[cell.mark, cell.slot] = cell if known is None else known.plus(cell)
    return Part(seen, list(cells.values()))


def all_scaled(kinds: Iterable[Kind]) -> Iterator[tuple[int, Group, list[Scaled]]]:
    """The mark after which they are; the gaps; what stands for them."""
    by_mark: dict[int, dict[tuple[int, int], Group]] = {}
    same_edge: dict[int, list[Group]] = {}
    for kind in kinds:
        same_edge.setdefault(kind.edge, []).append(Group(kind.to, kind.octave, [kind]))
        groups = by_mark.setdefault(kind.mark, {})
        group = groups.setdefault((kind.to, kind.octave), Group(kind.to, kind.octave))
        group.kinds.append(kind)
    for mark, groups in by_mark.items():
        after = list(groups.values())
        for group in after:
            yield mark, group, list(_of_group(group, after, same_edge))


def _of_group(
    group: Group, after: list[Group], same_edge: dict[int, list[Group]]
) -> Iterator[Scaled]:
    """What stands for all of its gaps.

    ``after`` has all that begin at its mark, ``same_edge`` those in one position and to one mark.
    """
    yield Scaled(group.first, 1.0, 1.0)
    yield Scaled(group.certain, 1.0, 1.0)
    if group.octave >= LONG:
        certain_ns = group.first.seen.ns + group.certain.seen.ns
        yield from _of_long(group, max(0.0, sum(group.ns) - certain_ns))
        return
    few: list[tuple[Kind, float, float]] = []
    for kind in group.kinds:
        certain, random = kind.whole
        n = sum(kind.n) - kind.first.seen.n - certain.seen.n
        ns = max(0.0, sum(kind.ns) - kind.first.seen.ns - certain.seen.ns)
        if n > 0:
            if certain.seen.n or random.seen.n >= min(n, ENOUGH):
                yield from _of_others(certain, random, n, ns)
            elif near := _often_nearby(kind, same_edge[kind.edge]):
                yield _like(near, n, ns, group.octave)
            else:
                few.append((kind, n, ns))
    if few:
        yield from _of_few(few, group, after)


def _often_nearby(kind: Kind, same_edge: list[Group]) -> Part | None:
    """Gaps in the same position, of another length, if enough were seen."""
    near = _nearest(kind.octave, _by_octave(same_edge))
    return near if near is not None and near.seen.n >= ENOUGH else None


def _of_others(certain: Part, random: Part, n: float, ns: float) -> Iterator[Scaled]:
    """``n`` gaps that took ``ns`` and were not seen in certain windows."""
    if random.seen.n >= ENOUGH or not certain.seen.n:
        yield _times(random, n / random.seen.n, ns, n - random.seen.n)
        return
    # Both, as if the certain window had been one of the others.
    yield _times(random, 1.0, ns, 0.0)
    left = n - random.seen.n
    if left > 0:
        yield _times(certain, left / certain.seen.n, ns, left)


def _of_few(
    few: list[tuple[Kind, float, float]], group: Group, after: list[Group]
) -> Iterator[Scaled]:
    """Gaps, and their time, in positions of which too few were seen: taken together."""
    n, ns = sum(n for _, n, _ in few), sum(ns for _, _, ns in few)
    random = _together(kind.whole[1] for kind, _, _ in few)
    if random.seen.n >= ENOUGH:
        yield _times(random, n / random.seen.n, ns, n - random.seen.n)
        return
    for part in (group.random, group.certain, group.first):
        if part.seen.n:
            yield _times(part, n / part.seen.n, ns, n)
            return
    to_the_same = [other for other in after if other.to == group.to]
    near = _nearest(group.octave, _by_octave(to_the_same))
    near = near or _nearest(group.octave, _by_octave(after))
    if near is not None:
        yield _like(near, n, ns, group.octave)


def _like(near: Part, n: float, ns: float, octave: int) -> Scaled:
    """``n`` gaps that took ``ns``, by what was seen of others that are of another length."""
    scaled = _times(near, n / near.seen.n, ns, n)
    if octave <= _octave_of(near):
        return scaled
    # What made these longer may have been ops like the others, or none: two standard errors are as
    # many as go into the time.
    more = scaled.ops * max(0.0, ns * near.seen.n / (n * max(1.0, near.seen.ns)) - 1.0)
    apart_ns = (ns - scaled.ns) / SPREAD
    return replace(
        scaled,
        ops_variance=scaled.ops_variance + (more / SPREAD) ** 2,
        ns_variance=scaled.ns_variance + (apart_ns / 2) ** 2,
    )


def _octave_of(part: Part) -> int:
    return int(math.log2(max(1.0, part.seen.ns / part.seen.n)))


def _by_octave(others: Iterable[Group]) -> dict[int, Part]:
    """What was seen most often of each length; of first gaps only where nothing else is known."""
    others = list(others)
    parts = [
        (other.octave, part)
        for other in others
        for part in (other.certain, other.random)
        if part.seen.n
    ]
    parts = parts or [(other.octave, other.first) for other in others if other.first.seen.n]
    return dict(sorted(parts, key=lambda item: item[1].seen.n))


def _nearest(octave: int, by_octave: dict[int, Part]) -> Part | None:
    """One octave longer, as windows make them, or shorter, as most of those are that something
    held up, or longer."""
    shorter = [other for other in by_octave if other < octave]
    longer = [other for other in by_octave if other > octave]
    if octave + 1 in by_octave:
        return by_octave[octave + 1]
    if shorter:
        return by_octave[max(shorter)]
    return by_octave[min(longer)] if longer else None


def _of_long(group: Group, ns: float) -> Iterator[Scaled]:
    """Seen in slices: what was seen of whole ones by chance is one more."""
    certain, random = group.slices
    yield Scaled(certain, 1.0, 1.0)
    ns = max(0.0, ns - certain.seen.ns)
    seen_ns = random.seen.ns + group.random.seen.ns
    if not ns:
        return
    if seen_ns:
        for part in (random, group.random):
            if part.seen.ns:
                share = part.seen.ns / seen_ns
                factor = max(1.0, ns * share / part.seen.ns)
                scaled = _times(part, factor, ns * share, part.seen.n * (factor - 1))
                yield scaled if part is not random else _with_edges(scaled)
    else:
        known = max((certain, group.certain, group.first), key=lambda part: part.seen.ns)
        if known.seen.ns:
            factor = ns / known.seen.ns
            yield _times(known, factor, ns, known.seen.n * factor)


def _with_edges(scaled: Scaled) -> Scaled:
    """Slices begin and end between two ops: each has a fraction of one too many or too few.

    Twice the variance of a fraction, 1/12, for each window.
    """
    seen, known = scaled.part.seen, scaled.ops_factor > 1 and scaled.part.seen.ops > 0
    if not known:
        return scaled
    ops_variance = scaled.ops_factor**2 * seen.windows / 6
    per_op = scaled.ns / scaled.ops
    return replace(
        scaled,
        ops_variance=scaled.ops_variance + ops_variance,
        ns_variance=scaled.ns_variance + ops_variance * per_op**2,
    )


def _times(part: Part, factor: float, limit_ns: float, extrapolated: float) -> Scaled:
    """``part`` times ``factor``; its ops take no longer than ``limit_ns`` in all.

    ``extrapolated`` of the gaps, or seconds, were not seen.
    """
    ns_factor = factor
    if part.seen.op_ns * factor > limit_ns:
        ns_factor = limit_ns / part.seen.op_ns
    share = extrapolated / (factor * part.seen.n) if factor and part.seen.n else 0.0
    return Scaled(
        part,
        factor,
        ns_factor,
        variance(part.seen, "ops", factor) * share,
        variance(part.seen, "op_ns", ns_factor) * share,
    )


def variance(seen: Seen, name: str, factor: float) -> float:
    """Of ``factor`` times the sum over what was seen, by how far windows differ from each other.

    Each window is one draw of n gaps (or seconds) with x ops: of their ratio r, the residuals
    x - r·n vary. Where one window has seen all, nothing tells, unless there were no ops in it: then
    the ops are as uncertain as their square root.
    """
    total, windows = getattr(seen, name), seen.windows
    if not total or not seen.n:
        return 0.0
    if windows < 2:
        ops = max(1.0, seen.ops)
        return float((factor * total) ** 2 / ops) if seen.n < 2 else 0.0
    squares, products = getattr(seen, f"{name}2"), getattr(seen, f"{name}_n")
    ratio = total / seen.n
    residuals = max(0.0, squares - 2 * ratio * products + ratio * ratio * seen.n2)
    # Windows differ in length: as good as so many of one length.
    alike = max(2.0, seen.n * seen.n / seen.n2)
    student = _student(alike - 1) / SPREAD
    return float((factor * student) ** 2 * residuals * alike / (alike - 1))


def _student(freedom: float) -> float:
    """How many standard errors hold the truth 19 times in 20."""
    known = int(freedom) - 1
    exact = _STUDENT[known] if known < len(_STUDENT) else 1.96 + 2.8 / freedom
    return SKEW * exact


def loose(observed: Observed) -> Iterator[Scaled]:
    """Ops of threads without marks: windows saw them for a part of the time."""
    certain, random = observed.loose
    certain_ns, random_ns = observed.times.open_ns
    if certain.cells:
        yield Scaled(_summed(certain), 1.0, 1.0)
    left_ns = 0.0 if observed.whole else max(0.0, observed.elapsed_ns - certain_ns)
    source, seen_ns = (random, random_ns) if random_ns else (certain, certain_ns)
    if source.cells and seen_ns and left_ns:
        part = _summed(source)
        factor = max(1.0, left_ns / seen_ns) if random_ns else left_ns / seen_ns
        variance = factor * factor * part.seen.ops
        per_op = part.seen.op_ns / part.seen.ops
        yield Scaled(part, factor, factor, variance, variance * per_op * per_op)


def _summed(part: Part) -> Part:
    """With the sums of its cells, which for threads without marks nobody keeps."""
    ops = float(sum(cell.count for cell in part.cells))
    op_ns = float(sum(cell.time_ns for cell in part.cells))
    return Part(Seen(n=1.0, ops=ops, op_ns=op_ns), part.cells)
