"""Gaps that are longer than a window: seen in slices, for so much time each; some of them whole.

A long gap may be one thing at first and another one later: it takes many windows to know it. Of
which there were few, other long gaps after the same mark say more.
"""

from collections.abc import Iterator
from dataclasses import replace

from instrumented_backend.observe.native.structs import Seen
from instrumented_backend.observe.ops.observed import Part
from instrumented_backend.observe.ops.scaled import (
    ABOUT,
    CUT,
    ENOUGH,
    FAR,
    FEW,
    LONG,
    UNLIKE,
    Doubt,
    Group,
    Scaled,
    are_alike,
    are_bare,
    beginnings,
    by_octave,
    deviation,
    far_shorter,
    gaps_seen_whole,
    like,
    nearest,
    of_others,
    times,
    together,
)
from instrumented_backend.observe.ops.spread import SPREAD, variance_of_gaps

TOLD_NS = 5e7  # by windows that are shorter less is told
UNTOLD = 0.25  # windows' worth that others weigh
OTHERS_ERR = 1.25  # what others are off by comes on top of how these differ from them
TOLD_COST = 0.3  # by what part that may be wrong which seeing ops is told to have cost


def of_long(group: Group, after: list[Group]) -> Iterator[Scaled]:
    """What stands for its gaps, but for those that certain windows saw whole."""
    n = sum(group.n) - group.first.seen.n - group.certain.seen.n
    ns = max(0.0, group.own_ns - group.first.seen.ns - group.certain.seen.ns)
    if n <= 0:
        return
    if are_alike(group):
        # As evaluations are. How long they take differs, and where a window sees one, it is longer.
        yield from of_others(group.certain, group.random, n, ns)
        return
    certain, random = group.slices
    alike = _alike_nearby(group, after)
    if alike is not None and random.seen.windows < FEW:
        scaled = like(alike, n, ns, group.octave)
        yield _unsure(scaled) if group.to == CUT else scaled
        return
    yield Scaled(certain, 1.0, 1.0)
    ns = max(0.0, ns - certain.seen.ns)
    if not ns:
        return
    by_chance = together([random, group.random])
    own = _own_share(by_chance.seen)
    others = _slices_of_others(group, after) if own < 1.0 else together([])
    known = max((certain, group.certain, group.first), key=lambda part: part.seen.ns)
    if by_chance.seen.ns:
        left_ns = max(0.0, ns - by_chance.seen.ns) * (1 - own) if others.seen.ns else 0.0
        yield from _by_their_time(group, ns - left_ns, _begun(group, ns, n, after))
        if left_ns:
            yield _by_that_of_others(others, left_ns / (1 - own), own, by_chance)
    elif known.seen.ns:
        factor = ns / known.seen.ns
        yield times(known, factor, ns, known.seen.n * factor)
    elif others.seen.ns:
        yield _by_that_of_others(others, ns)
    else:
        yield from _like_others(group, ns, n, after)


def shorter_ones(group: Group, after: list[Group]) -> Part | None:
    """Gaps after the same mark, seen whole, that these are far longer than.

    None where there are no such, or where chance saw enough of these, or those tell more that were
    seen whole. Looks at what the program ran have found some of them (`_op_windows.h`), or others.
    """
    if group.octave < UNLIKE or group.slices[1].seen.windows >= FEW or _told_by_whole(group):
        return None
    known = [other for other in after if _whole(other)]
    if group.looked.ns:
        if _alike_nearby(group, after) is not None:
            return None
    elif (
        group.octave >= LONG
        or any(other.octave > group.octave - FAR for other in known)
        or not any(other.looked.ns for other in _long(after))
    ):
        return None
    return far_shorter(group, known)


def _whole(group: Group) -> float:
    """How many were seen from their beginning to their end."""
    return float(sum(part.seen.n for part in (group.first, group.certain, group.random)))


def _told_by_whole(group: Group) -> bool:
    """Do those that were seen whole tell more than those of which looks found slices?

    Of a loop that lasts for so long, however often it goes round, whole ones have fewer ops than
    the others, for what seeing these takes.
    """
    seen, looked = gaps_seen_whole(group), group.looked
    if not _have_as_many(looked):
        return _whole(group) > 0
    if not seen.n:
        return False
    each, each_looked = seen.ops / seen.n, looked.ops / looked.n
    return bool(seen.n >= looked.n or abs(each_looked - each) <= ABOUT * each)


def _long(after: list[Group]) -> Iterator[Group]:
    """Those that may have slices."""
    return (other for other in after if other.octave >= UNLIKE)


def of_unlike(group: Group, shorter: Part, after: list[Group]) -> Iterator[Scaled]:
    """At first they are like shorter ones, and then like slices: of other ops, or of none.

    Whether they begin like these is not known: two standard errors are as many ops. Each of which
    there are slices is like these for all of its time, so that those that differ are no matter.
    """
    (own, random), looked = group.slices, group.looked
    whole = together([group.first, group.certain, group.random])
    if group.random.seen.n:
        yield Scaled(group.random, 1.0, 1.0)
    n, own_ns = sum(group.n) - whole.seen.n, max(1.0, group.own_ns - whole.seen.ns)
    if n <= 0:
        return
    before_ns = min(n * shorter.seen.ns / shorter.seen.n, own_ns)
    yield _unsure(times(shorter, n / shorter.seen.n, before_ns, n))
    ns = max(1.0, own_ns - before_ns)
    elsewhere = random
    if not random.seen.ns:
        others = (other for other in _long(after) if other is not group)
        elsewhere = together([part for other in others for part in other.slices])
    if not looked.ns:
        yield _by_that_of_others(elsewhere, ns)
        return
    if _have_as_many(looked):
        alike = _by_each(own, looked, max(1.0, looked.ns * n / looked.n - before_ns), elsewhere)
        longest = ns / own.seen.op_ns if own.seen.op_ns else 1.0  # as the clock allows
        yield replace(alike, ns_factor=min(alike.ns_factor, longest))
        return
    share = max(_own_share(own.seen), looked.n / n)
    left_ns = max(0.0, ns - looked.ns) * (1 - share) if elsewhere.seen.ns else 0.0
    yield _by_each(own, looked, ns - left_ns, elsewhere)
    if left_ns:
        yield _by_that_of_others(elsewhere, left_ns / (1 - share), share, own)


def _have_as_many(looked: Seen) -> bool:
    """Had each about as many ops, as evaluations have, however long they take?"""
    return bool(looked.n >= ENOUGH and looked.ops and deviation(looked) <= ABOUT)


def _by_each(slices: Part, looked: Seen, ns: float, elsewhere: Part) -> Scaled:
    """Slices stand for ``ns``: as many ops as in as much time of the gaps that were looked at.

    Each of these may be off by a tenth, and the rest by how far they differ, or where there is but
    one, by how far it differs from what was seen ``elsewhere``.
    """
    others = max(0.0, ns / looked.ns - 1)  # times as many

    def scaled(name: str) -> tuple[float, float]:
        seen, of_all = getattr(slices.seen, name), getattr(looked, name) * ns / looked.ns
        far = variance_of_gaps(looked, name, others)
        if looked.n < 2:
            there = (
                getattr(elsewhere.seen, name) * ns / elsewhere.seen.ns if elsewhere.seen.ns else 0
            )
            apart = min(of_all, abs(of_all - there) + UNTOLD * of_all)
            far = (apart * others / (1 + others) / SPREAD) ** 2
        return of_all / seen if seen else 1.0, ABOUT**2 * getattr(looked, f"each_{name}2") + far

    (ops_factor, ops_variance), (ns_factor, ns_variance) = scaled("ops"), scaled("op_ns")
    return Scaled(slices, ops_factor, ns_factor, ops_variance, ns_variance, in_slices=True)


def _own_share(seen: Seen) -> float:
    """How much few windows stand for of the time that they did not see; other gaps for the rest."""
    told = min(seen.windows, seen.ns / TOLD_NS)
    return 1.0 if seen.windows >= FEW else told / (told + UNTOLD)


def _begun(group: Group, ns: float, n: float, after: list[Group]) -> Scaled | None:
    """As many gaps as there are, if all began as shorter ones after the same mark."""
    known = by_octave(other for other in after if other.octave < min(LONG, group.octave))
    shorter = nearest(group.octave, known)
    return None if shorter is None else times(shorter, n / shorter.seen.n, ns, n)


def _by_their_time(group: Group, ns: float, begun: Scaled | None) -> Iterator[Scaled]:
    """What chance saw of them, in slices and whole, stands for so much time."""
    certain, random = group.slices
    seen_ns = random.seen.ns + group.random.seen.ns
    for part in (random, group.random):
        if part.seen.ns:
            share = part.seen.ns / seen_ns
            factor = max(1.0, ns * share / part.seen.ns)
            scaled = times(part, factor, ns * share, part.seen.n * (factor - 1))
            if part is random:
                scaled = _one_window(_unlike(_with_edges(scaled, begun), certain))
                scaled = _without_cost(scaled, group)
                scaled = replace(scaled, in_slices=True, doubts=_begun_by(begun))
            yield scaled


def _begun_by(begun: Scaled | None) -> tuple[Doubt, ...]:
    return () if begun is None else beginnings(begun.part, begun.ops_factor * begun.part.seen.n)


def _slices_of_others(group: Group, after: list[Group]) -> Part:
    """What chance saw of other long gaps after the same mark."""
    return together(
        [other.slices[1] for other in after if other is not group and other.octave >= LONG]
    )


def _by_that_of_others(
    others: Part, ns: float, own: float = 0.0, by_chance: Part | None = None
) -> Scaled:
    """Gaps that took ``ns``, but for the share that their ``own`` windows stand for.

    They end elsewhere, or are longer or shorter: the fewer their own windows, the more these tell,
    and the less certain it is. Two standard errors are by how much the two differ, and all of it
    where there are none of their own.
    """
    left_ns = ns * (1 - own)
    factor = left_ns / others.seen.ns
    scaled = times(others, factor, left_ns, others.seen.n * factor)

    def apart(name: str, estimate: float) -> float:
        each = estimate / (1 - own)
        differ = 0.0
        if by_chance is not None:
            alone = getattr(by_chance.seen, name) * ns / by_chance.seen.ns
            differ = abs(min(alone, 2 * each) - each)
        return (((1 - own) * differ + (1 - own) ** 2 * OTHERS_ERR * each) / SPREAD) ** 2

    return replace(
        scaled,
        ops_variance=scaled.ops_variance + apart("ops", scaled.ops),
        ns_variance=scaled.ns_variance + apart("op_ns", scaled.ns),
        in_slices=True,
    )


def _like_others(group: Group, ns: float, n: float, after: list[Group]) -> Iterator[Scaled]:
    """No window saw any of them: like those of about their length that were seen whole."""
    near = [other for other in after if other.octave >= LONG and other.to == group.to]
    near = near or [other for other in after if other.octave >= LONG]
    known = by_octave(near)
    found = known.get(group.octave) or nearest(group.octave, known)
    if found is not None:
        yield like(found, n, ns, group.octave)


def _alike_nearby(group: Group, after: list[Group]) -> Part | None:
    """Gaps of the next octave, between the same marks, that all have as many ops.

    The last gap of all, of which no window saw any, is as likely one of these.
    """
    if are_bare(group):
        return None
    is_unseen = group.to == CUT and not any(part.seen.ns for part in group.slices)
    for other in after:
        is_near = other is not group and abs(other.octave - group.octave) <= 1
        if is_near and (other.to == group.to or is_unseen) and are_alike(other):
            return together([other.certain, other.random])
    return None


def _with_edges(scaled: Scaled, begun: Scaled | None) -> Scaled:
    """Slices begin and end between two ops: each has a fraction of one too many or too few.

    Twice the variance of a fraction, 1/12, for each window. Where they saw none, they may have
    missed what there is at the gaps' beginnings: a standard error is all that had ``begun``, as
    gaps of all lengths then err together.
    """
    seen = scaled.part.seen
    if scaled.ops_factor <= 1:
        return scaled
    if not seen.ops:
        return scaled if begun is None else _off_by(scaled, begun)
    ops_variance = scaled.ops_factor**2 * seen.windows / 6
    per_op = scaled.ns / scaled.ops
    return replace(
        scaled,
        ops_variance=scaled.ops_variance + ops_variance,
        ns_variance=scaled.ns_variance + ops_variance * per_op**2,
    )


def _without_cost(scaled: Scaled, group: Group) -> Scaled:
    """What it took to see ops is no part of a slice's time: by that, all slices err together.

    It is a large part where ops take little.
    """
    if scaled.ops_factor <= 1:
        return scaled
    seen_ns = sum(
        part.seen.ns for part in (*group.slices, group.first, group.certain, group.random)
    )
    share = TOLD_COST * (sum(group.ns) - group.own_ns) / seen_ns
    unseen = scaled.ops * (1 - 1 / scaled.ops_factor)
    return replace(scaled, ops_variance=scaled.ops_variance + (share * unseen / SPREAD) ** 2)


def _unsure(scaled: Scaled) -> Scaled:
    """It may be something else altogether: two standard errors are all of it."""
    return replace(
        scaled,
        ops_variance=scaled.ops_variance + (scaled.ops / SPREAD) ** 2,
        ns_variance=scaled.ns_variance + (scaled.ns / SPREAD) ** 2,
    )


def _off_by(scaled: Scaled, error: Scaled) -> Scaled:
    return replace(
        scaled,
        ops_variance=scaled.ops_variance + error.ops**2,
        ns_variance=scaled.ns_variance + error.ns**2,
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


def _one_window(scaled: Scaled) -> Scaled:
    """It tells nothing of the rest: two standard errors are all of it."""
    seen = scaled.part.seen
    if seen.windows >= 2 or scaled.ops_factor <= 1:
        return scaled
    unseen = 1 - 1 / scaled.ops_factor
    return replace(
        scaled,
        ops_variance=scaled.ops_variance + (scaled.ops * unseen / SPREAD) ** 2,
        ns_variance=scaled.ns_variance + (scaled.ns * unseen / SPREAD) ** 2,
    )
