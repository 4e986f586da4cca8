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
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from instrumented_backend.observe.native.build import Seen
from instrumented_backend.observe.ops.cells import Together
from instrumented_backend.observe.ops.observed import Kind, Part
from instrumented_backend.observe.ops.spread import SPREAD, variance

LONG = 27  # from this octave on, gaps are seen in slices; `_op_state.h` says the same
ENOUGH = 3  # gaps in random windows, for those of certain windows not to be needed
NEAR = 2  # octaves
REACH = 6  # octaves by which something may hold a gap up, such as other programs on its core
WORTH = 0.001  # of the ops, what they may be off by without a word
HELD_UP = 4.0  # times as long as others with as many ops
ALIKE = 0.02  # by what part of their mean the ops of long gaps may differ, and be alike
UNEVEN = 2.0  # what is rare in one octave is in the next: their variances are larger than apart
FEW = 8  # windows
UNLIKELY = 0.05
SMALL_OP_NS = 10_000  # few take less, with the Python that calls them


@dataclass(frozen=True)
class Doubt:
    """Some of the gaps may be like others: with which variance, how many."""

    others: Part
    variance: float


@dataclass(frozen=True)
class Scaled:
    """A part that stands for more than itself: how many times, its ops and their time."""

    part: Part
    ops_factor: float
    ns_factor: float
    ops_variance: float = 0.0
    ns_variance: float = 0.0
    doubts: tuple[Doubt, ...] = ()

    @property
    def ops(self) -> float:
        return float(self.part.seen.ops * self.ops_factor)

    @property
    def ns(self) -> float:
        return float(self.part.seen.op_ns * self.ns_factor)

    @property
    def doubted_ops_variance(self) -> float:
        return self.ops_variance + self._doubt(lambda part: part.seen.ops)

    @property
    def doubted_ns_variance(self) -> float:
        return self.ns_variance + self._doubt(lambda part: part.seen.op_ns)

    def doubt_of(self, name: str) -> float:
        """The variance that doubts add to the number of one op."""
        return self._doubt(lambda part: part.counts[name])

    def _doubt(self, value: Callable[[Part], float]) -> float:
        """By how much gaps like the others would differ. One of the doubts comes true at most."""
        if not self.doubts:
            return 0.0
        own = value(self.part) / self.part.seen.n
        return max(
            float(doubt.variance * (value(doubt.others) / doubt.others.seen.n - own) ** 2)
            for doubt in self.doubts
        )


@dataclass
class Group:
    """Gaps of one kind, wherever in the program's loop they were: `kinds` has these apart."""

    to: int
    octave: int
    kinds: list[Kind]
    n: tuple[int, int] = field(init=False)
    ns: tuple[int, int] = field(init=False)
    first: Part = field(init=False)
    certain: Part = field(init=False)
    random: Part = field(init=False)

    def __post_init__(self) -> None:
        kinds = self.kinds
        self.n = sum(kind.n[0] for kind in kinds), sum(kind.n[1] for kind in kinds)
        self.ns = sum(kind.ns[0] for kind in kinds), sum(kind.ns[1] for kind in kinds)
        self.first = together([kind.first for kind in kinds])
        self.certain = together([kind.whole[0] for kind in kinds])
        self.random = together([kind.whole[1] for kind in kinds])

    @cached_property
    def slices(self) -> tuple[Part, Part]:
        certain, random = (together([kind.slices[i] for kind in self.kinds]) for i in range(2))
        return certain, random


def together(parts: list[Part]) -> Part:
    """What several kinds of gap are, taken as one."""
    if len(parts) > 1:
        parts = [part for part in parts if part.seen.n or part.cells]
    if len(parts) == 1:
        return parts[0]
    seen = Seen()
    for part in parts:
        seen.add(part.seen)
    return Part(seen, Together([part.cells for part in parts]) if parts else [])


def all_scaled(kinds: Iterable[Kind]) -> Iterator[tuple[int, Group, list[Scaled]]]:
    """The mark after which they are; the gaps; what stands for them."""
    by_mark: dict[int, dict[tuple[int, int], list[Kind]]] = {}
    same_edge: dict[int, list[Group]] = {}
    for kind in kinds:
        same_edge.setdefault(kind.edge, []).append(Group(kind.to, kind.octave, [kind]))
        by_mark.setdefault(kind.mark, {}).setdefault((kind.to, kind.octave), []).append(kind)
    for mark, groups in by_mark.items():
        after = [Group(to, octave, alike) for (to, octave), alike in groups.items()]
        for group in after:
            yield mark, group, list(_of_group(group, after, same_edge))


def _of_group(
    group: Group, after: list[Group], same_edge: dict[int, list[Group]]
) -> Iterator[Scaled]:
    """What stands for all of its gaps.

    ``after`` has all that begin at its mark, ``same_edge`` those in one position and to one mark.
    """
    for part in (group.first, group.certain):
        if part.seen.n or part.cells:
            yield Scaled(part, 1.0, 1.0)
    if group.octave >= LONG:
        yield from _of_long(group, after)
        return
    few: list[tuple[Kind, float, float]] = []
    for kind in group.kinds:
        certain, random = kind.whole
        n = sum(kind.n) - kind.first.seen.n - certain.seen.n
        ns = max(0.0, sum(kind.ns) - kind.first.seen.ns - certain.seen.ns)
        if n > 0:
            on_edge = same_edge[kind.edge]
            if certain.seen.n or random.seen.n >= min(n, ENOUGH):
                *known, last = _of_others(certain, random, n, ns)
                yield from known
                seen = certain.seen.n + random.seen.n
                yield _doubted(last, kind, seen, n - random.seen.n, on_edge)
            elif near := _often_nearby(kind, on_edge):
                yield _doubted(_like(near, n, ns, group.octave), kind, 0, n, on_edge)
            else:
                few.append((kind, n, ns))
    found = _of_few(few, group, after) if few else None
    if found is not None and len(few) == 1:
        kind, n, _ = few[0]
        seen = kind.whole[1].seen.n
        found = _doubted(found, kind, seen, n - seen, same_edge[kind.edge])
    if found is not None:
        yield found


def _doubted(
    scaled: Scaled, kind: Kind, seen: float, unseen: float, same_edge: list[Group]
) -> Scaled:
    """Of so many unseen gaps, some may be unlike those that were seen.

    A rare evaluation takes as long as a step that something held up. Of ``seen`` gaps none was like
    those of another length: by Laplace's rule of succession the next one is with a chance of
    1 / (seen + 2). And there are hardly more of them than there are of about that length, unless
    all that was seen were steps held up.
    """
    if unseen <= 0 or len(same_edge) < 2 or not scaled.part.seen.n:
        return scaled
    chance = 1 / (seen + 2)
    variance = UNEVEN * unseen * chance * (1 - chance) * (unseen + seen + 2) / (seen + 3)
    own = scaled.part.seen.ops / scaled.part.seen.n
    near = [other for other in same_edge if 0 < abs(other.octave - kind.octave) <= NEAR]
    unlike = max((sum(other.n) for other in near if not _has_ops(other, own)), default=0)
    doubts = []
    for octaves in (range(kind.octave - REACH, kind.octave), (kind.octave + 1,)):
        others = [other for other in same_edge if other.octave in octaves]
        parts = [part for other in others for part in (other.certain, other.random)]
        n = sum(part.seen.n for part in parts)
        if not n:
            continue
        ops, ns = sum(part.seen.ops for part in parts), sum(part.seen.ns for part in parts)
        # Parts are put together only where that makes a difference.
        if _is_worth(min(variance, unlike**2), ops / n - own, scaled):
            doubts.append(Doubt(together(parts), min(variance, unlike**2)))
        times_longer = sum(kind.ns) / sum(kind.n) * n / ns if ns else 1.0
        if times_longer > HELD_UP and own * n <= (1 + ALIKE) * ops:
            full = Seen(1.0, 0.0, own * times_longer, scaled.ns / unseen * times_longer)
            if _is_worth(variance, full.ops - own, scaled):
                doubts.append(Doubt(Part(full, []), variance))
    return replace(scaled, doubts=tuple(doubts)) if doubts else scaled


def _is_worth(variance: float, ops: float, scaled: Scaled) -> bool:
    return math.sqrt(variance) * abs(ops) > max(1.0, WORTH * scaled.ops)


def _has_ops(group: Group, ops: float) -> bool:
    """Were there about as many in each of its gaps that were seen?"""
    n = group.certain.seen.n + group.random.seen.n
    mean = (group.certain.seen.ops + group.random.seen.ops) / n if n else math.inf
    return bool(abs(mean - ops) <= ALIKE * ops)


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
) -> Scaled | None:
    """Gaps, and their time, in positions of which too few were seen: taken together."""
    n, ns = sum(n for _, n, _ in few), sum(ns for _, _, ns in few)
    random = together([kind.whole[1] for kind, _, _ in few])
    if random.seen.n >= ENOUGH:
        return _times(random, n / random.seen.n, ns, n - random.seen.n)
    for part in (group.random, group.certain, group.first):
        if part.seen.n:
            return _times(part, n / part.seen.n, ns, n)
    to_the_same = [other for other in after if other.to == group.to]
    near = _nearest(group.octave, _by_octave(to_the_same))
    near = near or _nearest(group.octave, _by_octave(after))
    return None if near is None else _like(near, n, ns, group.octave)


def _like(near: Part, n: float, ns: float, octave: int) -> Scaled:
    """``n`` gaps that took ``ns``, by what was seen of others that are of another length."""
    longer = _octave_of(near) - octave
    if longer > (1 if octave >= LONG else REACH):
        # Nothing holds up gaps by so much: these are as pieces of such a gap. Two standard errors
        # are as many ops as go into their time.
        scaled = _times(near, ns / near.seen.ns, ns, 0.0)
        return replace(scaled, ops_variance=(max(scaled.ops, ns / SMALL_OP_NS) / SPREAD) ** 2)
    scaled = _times(near, n / near.seen.n, ns, n)
    if longer >= 0:
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


def _of_long(group: Group, after: list[Group]) -> Iterator[Scaled]:
    """Seen in slices, for so much time each; some of them whole."""
    n = sum(group.n) - group.first.seen.n - group.certain.seen.n
    ns = max(0.0, sum(group.ns) - group.first.seen.ns - group.certain.seen.ns)
    if n <= 0:
        return
    if _are_alike(group):
        # As evaluations are. How long they take differs, and where a window sees one, it is longer.
        yield from _of_others(group.certain, group.random, n, ns)
        return
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
                if part is random:
                    scaled = _unlike(_with_edges(scaled), certain)
                    scaled = _of_few_windows(scaled, ns * share, group, after)
                yield scaled
        return
    known = max((certain, group.certain, group.first), key=lambda part: part.seen.ns)
    if known.seen.ns:
        factor = ns / known.seen.ns
        yield _times(known, factor, ns, known.seen.n * factor)
        return
    near = [other for other in after if other.octave >= LONG and other.to == group.to]
    near = near or [other for other in after if other.octave >= LONG]
    nearest = _nearest(group.octave, _by_octave(near))
    if nearest is not None:
        yield _like(nearest, n, ns, group.octave)


def _are_alike(group: Group) -> bool:
    """Were as many ops in each that was seen whole, and were there two or more?"""
    seen = Seen()
    seen.add(group.certain.seen)
    seen.add(group.random.seen)
    if seen.n < 2:
        return False
    mean = seen.ops / seen.n
    return bool(seen.each_ops2 / seen.n - mean * mean <= (ALIKE * mean) ** 2)


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


def _unlike(scaled: Scaled, certain: Part) -> Scaled:
    """Few windows of chance tell little of how their time differs from the rest's.

    Two standard errors are at least by how much certain windows differ from them.
    """
    seen, known = scaled.part.seen, certain.seen
    if seen.windows >= FEW or not known.ns:
        return scaled

    def apart(name: str, estimate: float) -> float:
        of_certain = getattr(known, name) * seen.ns / known.ns
        share = of_certain / getattr(seen, name) - 1 if getattr(seen, name) else 0.0
        return float(estimate * share / SPREAD) ** 2

    return replace(
        scaled,
        ops_variance=scaled.ops_variance + apart("ops", scaled.ops),
        ns_variance=scaled.ns_variance + apart("op_ns", scaled.ns),
    )


def _of_few_windows(scaled: Scaled, ns: float, group: Group, after: list[Group]) -> Scaled:
    """A long gap may be one thing at first and another one later, and chance have met but one.

    One window tells nothing of the rest: two standard errors are all of it. Of few, the next one
    may have met what was seen in other gaps after the same mark.
    """
    seen = scaled.part.seen
    if seen.windows >= FEW or ns <= seen.ns:
        return scaled
    if seen.windows < 2:
        unseen = 1 - seen.ns / ns
        scaled = replace(
            scaled,
            ops_variance=scaled.ops_variance + (scaled.ops * unseen / SPREAD) ** 2,
            ns_variance=scaled.ns_variance + (scaled.ns * unseen / SPREAD) ** 2,
        )
    # What as many windows miss one time in twenty is at most that share of the time.
    most_s = 1e-9 * (ns - seen.ns) * (1 - UNLIKELY ** (1 / seen.windows))
    others = [other.slices[1] for other in after if other is not group and other.octave >= LONG]
    doubts = [Doubt(part, (most_s / SPREAD) ** 2) for part in others if part.seen.n]
    return replace(scaled, doubts=tuple(doubts)) if doubts else scaled


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
