"""Long gaps that have about as many ops each, however long they take, as evaluations have.

Looks find some of them (`_op_windows.h`) and see slices; windows of chance see one whole now and
then. How long each takes is the machine's: a busy one spreads them over several octaves. What was
seen of all of these tells of each.
"""

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from instrumented_backend.observe.native.structs import Seen
from instrumented_backend.observe.ops.observed import Part
from instrumented_backend.observe.ops.pooling import (
    About,
    Pooled,
    looked_at,
    pooled,
    seen_whole,
)
from instrumented_backend.observe.ops.scaled import (
    ABOUT,
    CUT,
    FEW,
    LOOKED,
    SLICES_TELL,
    UNLIKE,
    WHOLE,
    Group,
    Scaled,
    all_seen,
    beginnings,
    deviation,
    far_shorter,
    have_the_same,
    times,
    together,
)
from instrumented_backend.observe.ops.spread import SPREAD, variance, variance_of_gaps

NEAR = 2  # octaves
EVALUATION = 3.0  # times as many ops as shorter gaps, and not one of these that was held up
DIFFER = 0.5  # of their mean: gaps with as many ops differ by less, from octave to octave
TOO_SHORT = 0.4  # times what the ops of one take: a step that was held up
CLEARLY = 4.0  # times
LATE = 0.3  # by what part one is off that had no ops when it was first looked at


@dataclass
class _Known:
    """What was seen of gaps of about one length."""

    near: list[Group]  # of whose gaps slices tell that they have many ops
    looked: Seen
    wholes: list[Part]
    by_chance: list[Part]  # of these, those that random windows saw
    least: float  # ops, which such have
    share: float  # how many of the unseen have
    share_variance: float


def like_evaluations(group: Group, after: list[Group]) -> list[Scaled] | None:
    """What stands for those of its gaps that no certain window saw whole.

    ``after`` has all gaps that begin at its mark. None where nothing was looked at, where chance
    saw enough, or where those with many ops have not as many each.
    """
    windows = group.random.seen.windows + group.slices[1].seen.windows
    if group.octave < UNLIKE or windows >= FEW:
        return None
    shorter = far_shorter(group, after)
    if shorter is None:
        return None
    for reach in (NEAR, 0):
        known = _known(group, after, shorter.seen, reach)
        if known is not None:
            wholes = together(known.wholes)
            if wholes.seen.n >= 2 and deviation(wholes.seen) > ABOUT:
                return None  # the programs' own do, whatever slices tell
            if known.looked.n + wholes.seen.n >= 2 and _octaves_differ(known, wholes) <= DIFFER:
                return list(_scaled(group, shorter, known, wholes))
    return None


def _octaves_differ(known: _Known, wholes: Part) -> float:
    """By how much their ops do, as a share of the mean."""
    each = [(_ops_seen(other) / _gaps_seen(other), _gaps_seen(other)) for other in known.near]
    if wholes.seen.n and len(known.near) > 1:
        each.append((wholes.seen.ops / wholes.seen.n, wholes.seen.n))
    weights = sum(weight for _, weight in each)
    mean = sum(ops * weight for ops, weight in each) / weights
    return math.sqrt(sum(weight * (ops - mean) ** 2 for ops, weight in each) / weights) / mean


def _known(group: Group, after: list[Group], shorter: Seen, reach: int) -> _Known | None:
    """Of gaps within so many octaves; of its own, how many have many ops. None where none has."""
    near = [
        other
        for other in after
        if group.to in (other.to, CUT)  # the last gap of all is as likely an evaluation
        and other.octave >= UNLIKE
        and abs(other.octave - group.octave) <= reach
    ]
    least = EVALUATION * shorter.ops / shorter.n
    with_ops = [other for other in near if _ops_seen(other) > least * _gaps_seen(other)]
    looked = all_seen(other.looked for other in with_ops)
    if not looked.ops:
        return None
    by_chance, certain = (
        [part for part in parts if _have_more(part.seen, least)]
        for parts in ([other.random for other in near], [other.certain for other in near])
    )
    # Those of certain windows are themselves: most are a program's first.
    own = [group.random.seen, group.looked]
    tell = own
    if not any(seen.n for seen in own):
        tell = [other.looked for other in near]
        if group.own_ns / sum(group.n) < TOO_SHORT * looked.op_ns / looked.n:
            return None
    n = sum(seen.n for seen in tell)
    many = sum(seen.n for seen in tell if _have_more(seen, least))
    if not many:
        return None
    of_next = (many + 1) / (n + 2)  # Laplace's rule of succession
    return _Known(
        with_ops,
        looked,
        [*certain, *by_chance],
        by_chance,
        least,
        many / n,
        of_next * (1 - of_next) / (n + 3),
    )


def _scaled(group: Group, shorter: Part, known: _Known, wholes: Part) -> Iterator[Scaled]:
    parts = (group.first, group.certain, group.random)
    if group.random.seen.n:
        yield Scaled(group.random, 1.0, 1.0)
    unseen = sum(group.n) - sum(part.seen.n for part in parts)
    if unseen <= 0:
        return
    ns = max(1.0, group.own_ns - sum(part.seen.ns for part in parts))
    # Of those that were looked at, the ops are about known; of the others, how many have as many.
    looked_n = min(group.looked.n, unseen) if _have_more(group.looked, known.least) else 0.0
    left = unseen - looked_n
    others_n, held_up = left * known.share, left * (1 - known.share)
    n = looked_n + others_n
    if held_up:
        yield times(shorter, held_up / shorter.seen.n, ns * held_up / unseen, 0.0)
        ns *= n / unseen
    if _is_slowed(wholes.seen, known.looked):
        wholes = together([])
    each = _each(known, wholes.seen)
    own = _about(group.looked, group.met, group.ended) if looked_n else []
    ops, ops_variance = each.sum_of(own)
    others, others_variance = _of_others(known, each, others_n, ns * others_n / n)
    ops, ops_variance = ops + others, ops_variance + others_variance
    slices = together([part for other in known.near for part in other.slices])
    if wholes.seen.n and each.between <= (ABOUT * each.mean) ** 2:
        part = _timed_as(wholes, together(known.by_chance), slices)
    else:
        # Each begins as the shorter ones do.
        begun_ns = min(n * shorter.seen.ns / shorter.seen.n, ns)
        yield times(shorter, n / shorter.seen.n, begun_ns, 0.0)
        part, ops = slices, ops * (1 - begun_ns / ns)
        ns -= begun_ns
        ops_variance += (SLICES_TELL * ops) ** 2
    # How long each took is known; of that, its ops: as uncertain as their number, at least.
    seen = all_seen([group.looked, group.random.seen])
    of_time = seen if seen.op_ns else all_seen([known.looked, wholes.seen])
    op_ns = ns * of_time.op_ns / of_time.ns
    ns_variance = max(
        ops_variance * (op_ns / ops) ** 2,
        variance_of_gaps(of_time, "op_ns", n / of_time.n),
        variance(slices.seen, "op_ns", ns / slices.seen.ns),
    )
    unsure = left * left * known.share_variance / (n * n)
    if group.to == CUT and not seen.n:
        unsure += 1 / SPREAD**2  # it may be something else altogether
    yield Scaled(
        part,
        ops / part.seen.ops,
        op_ns / part.seen.op_ns if part.seen.op_ns else 1.0,
        ops_variance + unsure * ops**2,
        ns_variance + (unsure + ABOUT**2) * op_ns**2,
        beginnings(shorter, n),
        in_slices=part is slices,
    )


def _about(looked: Seen, met: Seen, ended: Seen) -> list[About]:
    """Gaps that were looked at, by how much of each was seen."""
    return [*looked_at(met, ended), About.of(looked, LATE, SLICES_TELL, but=met)]


def _each(known: _Known, wholes: Seen) -> Pooled:
    """How many ops each has, and how far they differ."""
    several = known.near
    about = _about(
        known.looked,
        all_seen(other.met for other in several),
        all_seen(other.ended for other in several),
    )
    by_chance = together([other.slices[1] for other in several]).seen
    if by_chance.ns:
        gaps = sum(_gaps_in(other, other.slices[1].seen.ns) for other in several)
        about.append(About(gaps, by_chance.ops, by_chance.ops**2 / gaps, LOOKED, SLICES_TELL))
    if not wholes.n:
        return _found(about)
    whole = seen_whole(wholes, several)
    found = _found([whole, *about])
    ended = about[0]
    # Slices are off by a third on a busy machine: those that are the same tell, whatever these say.
    same = have_the_same(wholes) and not ended.n
    if same or (whole.error <= WHOLE and not found.between):
        return Pooled(wholes.ops / wholes.n, found.mean_variance, 0.0)
    return found


def _found(about: list[About]) -> Pooled:
    found = pooled(about)
    assert found is not None  # those that were looked at have ops
    return found


def _of_others(known: _Known, each: Pooled, n: float, ns: float) -> tuple[float, float]:
    """The ops of ``n`` gaps that took ``ns`` and were not looked at, and their variance.

    As many each, or as many in as much time, where that clearly differs less from octave to octave:
    a loop may last for so long, however often it goes round.
    """
    if not n:
        return 0.0, 0.0
    ops = n * each.mean
    if each.between:
        ops = _of_as_many(known.near, n, ns, ops)
    variance = n * each.between + n * n * each.mean_variance
    return ops, variance * (ops / (n * each.mean)) ** 2


def _timed_as(wholes: Part, *others: Part) -> Part:
    """Their ops take as long, on average, as those of the first of the ``others`` that has any.

    A program's first evaluation, which a certain window may have seen, loads kernels; it stands for
    itself.
    """
    source = next((part for part in others if part.seen.op_ns), wholes)
    usual, known = _op_ns_by_name(source), _op_ns_by_name(wholes)
    faster = {name: ns / known[name] for name, ns in usual.items() if known.get(name)}
    cells = [
        replace(cell, time_ns=round(cell.time_ns * faster.get(cell.name, 1.0)))
        for cell in wholes.cells
    ]
    seen = all_seen([wholes.seen])
    seen.op_ns = sum(cell.time_ns for cell in cells)
    return Part(seen, cells)


def _op_ns_by_name(part: Part) -> dict[str, float]:
    """What one op of each name takes, on average."""
    ns: defaultdict[str, float] = defaultdict(float)
    for cell in part.cells:
        ns[cell.name] += cell.time_ns
    return {name: ns[name] / count for name, count in part.counts.items() if count}


def _of_as_many(near: list[Group], n: float, ns: float, ops: float) -> float:
    """``ops``, or as many as in as much time. More was seen of one octave than of another, and it
    tells more."""
    ns_seen = [sum(part.seen.ns for part in other.slices) for other in near]
    gaps = [_gaps_seen(other) for other in near]
    seen = [_ops_seen(other) for other in near]
    each, density = sum(seen) / sum(gaps), sum(seen) / sum(ns_seen)

    def apart(of: list[float], mean: float) -> float:
        zipped = zip(seen, of, gaps, strict=True)
        return float(sum(weight * (one / its / mean - 1) ** 2 for one, its, weight in zipped))

    return density * ns if CLEARLY * apart(ns_seen, density) < apart(gaps, each) else ops


def _ops_seen(group: Group) -> float:
    return float(sum(part.seen.ops for part in group.slices))


def _gaps_seen(group: Group) -> float:
    """As many of its gaps as slices saw parts of, taken together; more than 0."""
    certain, by_chance = (part.seen.ns for part in group.slices)
    looked = group.looked
    of_looked = certain * looked.n / looked.ns if looked.n else _gaps_in(group, certain)
    return float(of_looked + _gaps_in(group, by_chance))


def _gaps_in(group: Group, ns: float) -> float:
    """As many as take so long."""
    return float(ns / max(1.0, group.own_ns / sum(group.n)))


def _is_slowed(whole: Seen, looked: Seen) -> bool:
    """Have those that were seen whole clearly fewer ops than those that were looked at?

    As of a loop that lasts for so long, for what seeing these takes.
    """
    each = looked.ops / looked.n
    error = math.sqrt(variance_of_gaps(looked, "ops", 1 / looked.n))
    if not whole.n or have_the_same(whole):
        return False
    return bool(whole.ops / whole.n < each - max(ABOUT * each, error * SPREAD))


def _have_more(seen: Seen, ops: float) -> bool:
    """Than so many ops each."""
    return bool(seen.ops > ops * seen.n)
