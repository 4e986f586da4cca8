"""How often what the op meter's windows saw happened: what stands for which gaps.

Gaps seen in certain windows stand for themselves: first steps allocate optimizer state and load
kernels. For the others of their kind stand those that random windows saw, as many times as there
were others; or, where these saw too few, those of certain windows; or gaps of the nearest length.
Long gaps were seen in slices, which stand for as much more time as the gaps lasted
(`long_gaps.py`).

A kind of gap is from where to where, which octave its length is in, and where in the program's
loop it is: a step with an evaluation after it is none like the others, nor is a graph's second call
in a step like its first, and a loop whose steps are all alike comes out exactly. Positions of which
too few were seen are taken together.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from instrumented_backend.observe.native.structs import Seen
from instrumented_backend.observe.ops.evaluations import like_evaluations
from instrumented_backend.observe.ops.held_up import held_up
from instrumented_backend.observe.ops.long_gaps import of_long, of_unlike, shorter_ones
from instrumented_backend.observe.ops.observed import Kind, Part
from instrumented_backend.observe.ops.scaled import (
    ALIKE,
    CUT,
    ENOUGH,
    LONG,
    REACH,
    UNLIKE,
    Doubt,
    Group,
    Scaled,
    are_the_same,
    as_pieces,
    by_octave,
    by_time,
    in_their_time,
    like,
    nearest,
    of_others,
    times,
    together,
)
from instrumented_backend.observe.ops.spread import variance_of_windows
from instrumented_backend.observe.ops.stages import by_stages

NEAR = 2  # octaves
WORTH = 0.001  # of the ops, what they may be off by without a word
HELD_UP = 4.0  # times as long as others with as many ops
LESS_CERTAIN = 2.0  # times the standard error by lengths, for which that of all lengths is better
EVALUATION = 3.0  # times as many ops as the mean: no kind that a turn has as many of as of others
UNEVEN = 2.0  # what is rare in one octave is in the next: their variances are larger than apart


def all_scaled(kinds: Iterable[Kind], waits: bool) -> Iterator[tuple[int, Group, list[Scaled]]]:
    """The mark after which they are; the gaps; what stands for them.

    ``waits``: the host waits for a GPU somewhere.
    """
    by_mark: dict[int, dict[tuple[int, int], list[Kind]]] = {}
    same_edge: dict[int, list[Group]] = {}
    for kind in kinds:
        same_edge.setdefault(kind.edge, []).append(Group(kind.to, kind.octave, [kind]))
        by_mark.setdefault(kind.mark, {}).setdefault((kind.to, kind.octave), []).append(kind)
    for mark, groups in by_mark.items():
        after = [Group(to, octave, alike) for (to, octave), alike in groups.items()]
        scaled = [list(_of_group(group, after, same_edge, waits)) for group in after]
        for group, each in zip(after, _begin_together(scaled), strict=True):
            yield mark, group, each


def _begin_together(groups: list[list[Scaled]]) -> Iterator[list[Scaled]]:
    """Long gaps of all lengths may begin with what shorter ones have: all of them do, or none."""
    doubts = [doubt for scaled in groups for each in scaled for doubt in each.doubts]
    total = sum(math.sqrt(doubt.variance) for doubt in doubts if doubt.besides)

    def with_all(doubt: Doubt) -> Doubt:
        deviation = math.sqrt(doubt.variance)
        return replace(doubt, variance=deviation * (total if doubt.besides else deviation))

    for scaled in groups:
        yield [replace(each, doubts=tuple(map(with_all, each.doubts))) for each in scaled]


def _of_group(
    group: Group, after: list[Group], same_edge: dict[int, list[Group]], waits: bool
) -> Iterator[Scaled]:
    """What stands for all of its gaps.

    ``after`` has all that begin at its mark, ``same_edge`` those in one position and to one mark.
    """

    def timed(scaled: Scaled, ns: float) -> Scaled:
        return in_their_time(scaled, ns) if waits else scaled

    for part in (group.first, group.certain):
        if part.seen.n or part.cells:
            yield Scaled(part, 1.0, 1.0)
    if not are_the_same(group):
        unlike = held_up(group, after) or by_stages(group, after) or like_evaluations(group, after)
        if unlike is not None:
            yield from unlike
            return
        shorter = shorter_ones(group, after)
        if shorter is not None:
            yield from of_unlike(group, shorter, after)
            return
    if group.octave >= LONG:
        yield from of_long(group, after)
        return
    # Of these lengths others tell less: what held up a gap, or an evaluation.
    known_whole = group.octave >= UNLIKE and group.certain.seen.n + group.random.seen.n
    few: list[tuple[Kind, float, float]] = []
    for kind in group.kinds:
        certain, random = kind.whole
        n = sum(kind.n) - kind.first.seen.n - certain.seen.n
        ns = max(0.0, kind.own_ns - kind.first.seen.ns - certain.seen.ns)
        if n > 0:
            on_edge = same_edge[kind.edge]
            regular = _regular(on_edge)
            unseen = n - random.seen.n
            if regular is not None and random.seen.n and unseen > 0:
                seen = regular.seen
                all_alike = times(regular, n / seen.n, n * seen.ns / seen.n, unseen)
                all_alike = _err_together(timed(all_alike, ns), unseen, on_edge)
                yield _doubted(all_alike, kind, seen.n, unseen, on_edge)
            elif certain.seen.n or random.seen.n >= min(n, ENOUGH):
                *known, last = of_others(certain, random, n, ns)
                yield from known
                left_ns = ns - sum(each.part.seen.ns for each in known)
                last = timed(last, left_ns) if waits else by_time(last, left_ns)
                known_n = certain.seen.n + random.seen.n
                yield _doubted(last, kind, known_n, unseen, on_edge)
            elif not known_whole and (near := _often_nearby(kind, on_edge)):
                alike = timed(like(near, n, ns, group.octave), ns)
                yield _doubted(alike, kind, 0, n, on_edge)
            else:
                few.append((kind, n, ns))
    found = _of_few(few, group, after) if few else None
    if found is None:
        return
    found = timed(found, sum(ns for _, _, ns in few))
    if len(few) == 1:
        kind, n, _ = few[0]
        seen = kind.whole[1].seen.n
        found = _doubted(found, kind, seen, n - seen, same_edge[kind.edge])
    yield found


def _regular(same_edge: list[Group]) -> Part | None:
    """Gaps in one position of all lengths, where a turn of the loop has as many of each kind.

    As where a graph is called twice a step, and what runs after the one call takes nearly as long
    as after the other. Lengths tell such kinds apart, but not all: where a window sees a gap, it
    can be in another octave. All windows then have about the same mean, over all lengths: it is
    hardly less certain than that of each, and what these are wrong by is no matter.
    """
    groups = [group for group in same_edge if group.octave < LONG and group.random.seen.n]
    seen = same_edge[0].kinds[0].by_chance
    if len(groups) < 2 or seen.windows < ENOUGH:
        return None
    if any(_mean_ops(group.random.seen) > EVALUATION * _mean_ops(seen) for group in groups):
        return None
    left = {group.octave: _not_certain(group) for group in groups}
    apart = sum(
        variance_of_windows(group.random.seen, "ops", left[group.octave] / group.random.seen.n)
        for group in groups
        if group.random.seen.windows >= 2
    )
    of_all = variance_of_windows(seen, "ops", sum(left.values()) / seen.n)
    if not apart or of_all > LESS_CERTAIN**2 * apart:
        return None
    return Part(seen, together([group.random for group in groups]).cells)


def _err_together(scaled: Scaled, unseen: float, same_edge: list[Group]) -> Scaled:
    """Gaps of all lengths, so many of which ``scaled`` tells of, are off by the same mean."""
    times_more = sum(_not_certain(group) for group in same_edge) / unseen
    return replace(
        scaled,
        ops_variance=scaled.ops_variance * times_more,
        ns_variance=scaled.ns_variance * times_more,
    )


def _mean_ops(seen: Seen) -> float:
    return float(seen.ops / seen.n)


def _not_certain(group: Group) -> float:
    return float(sum(group.n) - group.first.seen.n - group.certain.seen.n)


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
        times_longer = kind.own_ns / sum(kind.n) * n / ns if ns else 1.0
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
    """Gaps in the same position, of the nearest length of which enough were seen."""
    seen = by_octave(same_edge).items()
    return nearest(kind.octave, {octave: part for octave, part in seen if part.seen.n >= ENOUGH})


def _of_few(
    few: list[tuple[Kind, float, float]], group: Group, after: list[Group]
) -> Scaled | None:
    """Gaps, and their time, in positions of which too few were seen: taken together."""
    n, ns = sum(n for _, n, _ in few), sum(ns for _, _, ns in few)
    random = together([kind.whole[1] for kind, _, _ in few])
    if random.seen.n >= ENOUGH:
        return times(random, n / random.seen.n, ns, n - random.seen.n)
    for part in (group.random, group.certain, group.first):
        if part.seen.n:
            return times(part, n / part.seen.n, ns, n)
    to_the_same = [other for other in after if other.to == group.to]
    near = nearest(group.octave, by_octave(to_the_same))
    if near is None:
        elsewhere = by_octave(other for other in after if other.to != CUT)
        # The last gap of all is as likely like one of its own length.
        near = elsewhere.get(group.octave) if group.to == CUT else None
        near = near or nearest(group.octave, elsewhere)
    if near is not None:
        return like(near, n, ns, group.octave)
    piece = nearest(group.octave, by_octave(after))
    return as_pieces(piece, ns) if piece is not None and piece.seen.ns else None
