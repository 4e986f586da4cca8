"""Long gaps that have about as many ops each, however long they take, as evaluations have.

Looks find some of them (`_op_windows.h`) and see slices; windows of chance see one whole now and
then. How long each takes is the machine's: a busy one spreads them over several octaves. What was
seen of all of these tells of each.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from instrumented_backend.observe.native.build import Seen
from instrumented_backend.observe.ops.observed import Part
from instrumented_backend.observe.ops.scaled import (
    ABOUT,
    ALIKE,
    FAR,
    FEW,
    UNLIKE,
    Group,
    Scaled,
    by_octave,
    nearest,
    times,
    together,
)
from instrumented_backend.observe.ops.spread import SPREAD, variance, variance_of_gaps

NEAR = 2  # octaves
EVALUATION = 3.0  # times as many ops as shorter gaps, and not one of these that was held up
DIFFER = 0.5  # of their mean: slices of gaps that have as many ops differ by less
SLICES_TELL = 0.05  # by what part all slices together may be wrong


@dataclass
class _Known:
    """What was seen of gaps of about one length."""

    near: list[Group]  # with such gaps
    looked: Seen  # of those that have many ops
    wholes: list[Part]
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
    shorter = nearest(
        group.octave, by_octave(other for other in after if other.octave <= group.octave - FAR)
    )
    known = None if shorter is None else _known(group, after, shorter.seen)
    if shorter is None or known is None:
        return None
    wholes = together(known.wholes)
    of_all = _sum([known.looked, wholes.seen])
    if of_all.n < 2 or _differ(of_all) > DIFFER:
        return None
    return list(_scaled(group, shorter, known, wholes))


def _known(group: Group, after: list[Group], shorter: Seen) -> _Known | None:
    """Of gaps of about that length; of its own, how many have many ops. None where none has."""
    near = [
        other
        for other in after
        if other.to == group.to
        and other.octave >= UNLIKE
        and abs(other.octave - group.octave) <= NEAR
    ]
    least = EVALUATION * shorter.ops / shorter.n
    with_ops = [other for other in near if _have_more(other.looked, least)]
    if not with_ops:
        return None
    wholes = [part for other in near for part in (other.certain, other.random)]
    # Those of certain windows are themselves: most are a program's first.
    own = [group.random.seen, group.looked]
    by_chance = own if any(seen.n for seen in own) else [other.looked for other in near]
    n = sum(seen.n for seen in by_chance)
    many = sum(seen.n for seen in by_chance if _have_more(seen, least))
    if not many:
        return None
    of_next = (many + 1) / (n + 2)  # Laplace's rule of succession
    return _Known(
        with_ops,
        _sum(other.looked for other in with_ops),
        [part for part in wholes if _have_more(part.seen, least)],
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
    n, held_up = unseen * known.share, unseen * (1 - known.share)
    if held_up:
        yield times(shorter, held_up / shorter.seen.n, ns * (1 - known.share), 0.0)
    if not n:
        return
    looked, ns = known.looked, ns * known.share
    slices = together([other.slices[0] for other in known.near])
    whole = wholes.seen
    if _tell_as_much(whole, looked):
        part, ops = wholes, n * whole.ops / whole.n
        own_variance = variance_of_gaps(whole, "ops", n / whole.n)
        ops_variance = own_variance if whole.n >= 2 else _of_slices(looked, n, ops)
    elif slices.seen.ops:
        # Each begins as the shorter ones do.
        begun_ns = min(n * shorter.seen.ns / shorter.seen.n, ns)
        yield times(shorter, n / shorter.seen.n, begun_ns, 0.0)
        part, ops = slices, _of_as_many(known.near, looked, n, ns) * (1 - begun_ns / ns)
        ns -= begun_ns
        ops_variance = _of_slices(looked, n, ops)
    else:
        return
    # How long each took is known; of that, its ops.
    op_ns = ns * (looked.op_ns + whole.op_ns) / (looked.ns + whole.ns)
    ns_variance = variance(slices.seen, "op_ns", ns / slices.seen.ns) if slices.seen.ns else 0.0
    unsure = unseen * unseen * known.share_variance / (n * n)
    yield Scaled(
        part,
        ops / part.seen.ops,
        op_ns / part.seen.op_ns if part.seen.op_ns else 1.0,
        ops_variance + unsure * ops**2,
        ns_variance + (unsure + SLICES_TELL**2) * op_ns**2,
        in_slices=part is slices,
    )


def _of_slices(looked: Seen, n: float, ops: float) -> float:
    """The variance of the ``ops`` of ``n`` gaps by slices."""
    return variance_of_gaps(looked, "ops", n / looked.n) + (SLICES_TELL * ops) ** 2


def _of_as_many(near: list[Group], looked: Seen, n: float, ns: float) -> float:
    """The ops of ``n`` gaps that took ``ns``: as many each, or as many in as much time.

    Whichever differs less from octave to octave: a loop may last for so long, however often it goes
    round.
    """

    def apart(of: Callable[[Seen], float], mean: float) -> float:
        squares = (
            other.looked.n * (other.looked.ops / of(other.looked) / mean - 1) ** 2 for other in near
        )
        return float(sum(squares))

    each, density = looked.ops / looked.n, looked.ops / looked.ns
    if apart(lambda seen: seen.ns, density) < apart(lambda seen: seen.n, each):
        return float(density * ns)
    return float(each * n)


def _tell_as_much(whole: Seen, looked: Seen) -> bool:
    """Have those that were seen whole as many ops as slices tell?

    Of a loop that lasts for so long they have fewer, for what seeing these takes.
    """
    if not whole.n or _differ(whole) > ALIKE:
        return False
    each = looked.ops / looked.n
    error = math.sqrt(variance_of_gaps(looked, "ops", 1 / looked.n))
    return bool(
        whole.n >= looked.n or abs(whole.ops / whole.n - each) <= max(ABOUT * each, error * SPREAD)
    )


def _differ(seen: Seen) -> float:
    """The standard deviation of the ops of each gap, as a share of their mean."""
    mean = seen.ops / seen.n
    return math.sqrt(max(0.0, seen.each_ops2 / seen.n - mean * mean)) / mean if mean else 0.0


def _have_more(seen: Seen, ops: float) -> bool:
    """Than so many ops each."""
    return bool(seen.ops > ops * seen.n)


def _sum(several: Iterable[Seen]) -> Seen:
    total = Seen()
    for seen in several:
        total.add(seen)
    return total
