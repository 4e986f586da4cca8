"""Steps that something held up: the first of a kind, which loads kernels, or on a busy machine.

Looks (`_op_windows.h`) meet them once they have gone on for some milliseconds, and may see all ops
of such a step in a millisecond at its end. As much in all of its time would be ten steps' worth.
"""

from collections.abc import Iterator
from dataclasses import replace

from instrumented_backend.observe.native.structs import Seen
from instrumented_backend.observe.ops.observed import Part
from instrumented_backend.observe.ops.scaled import (
    ENOUGH,
    FAR,
    LONG,
    UNLIKE,
    Group,
    Scaled,
    all_seen,
    have_the_same,
    times,
    together,
)
from instrumented_backend.observe.ops.spread import SPREAD

RARE = 0.01  # of all gaps after the mark


def held_up(group: Group, after: list[Group]) -> list[Scaled] | None:
    """What stands for those of its gaps that no certain window saw whole.

    ``after`` has all gaps that begin at its mark. None where those that are so long are too many,
    where they or shorter gaps have not all the same ops, as far as they were seen whole, or where
    slices of those looked at have any op that these have not, or more of one: then they are no such
    steps.
    """
    if not UNLIKE <= group.octave < LONG:
        return None
    same_end = [other for other in after if other.to == group.to]
    shorter = [other for other in same_end if other.octave <= group.octave - FAR]
    as_long = [other for other in same_end if UNLIKE <= other.octave < LONG]
    if _number(as_long) > max(1.0, RARE * _number(shorter)):
        return None
    slices = together([other.slices[0] for other in as_long])
    looked = all_seen(other.looked for other in as_long)
    if not looked.n or not slices.counts:
        return None
    usual = together([part for other in shorter for part in (other.certain, other.random)])
    whole = together([part for other in as_long for part in (other.certain, other.random)])
    if usual.seen.n < ENOUGH or not have_the_same(together([usual, whole]).seen):
        return None
    of_all = looked.n / usual.seen.n
    if any(count > of_all * usual.counts[name] + 0.5 for name, count in slices.counts.items()):
        return None
    return list(_scaled(group, usual, looked))


def _number(groups: list[Group]) -> int:
    """Of gaps."""
    return sum(sum(group.n) for group in groups)


def _scaled(group: Group, usual: Part, looked: Seen) -> Iterator[Scaled]:
    whole = together([group.first, group.certain, group.random]).seen
    n, ns = sum(group.n) - whole.n, max(0.0, group.own_ns - whole.ns)
    if group.random.seen.n:
        yield Scaled(group.random, 1.0, 1.0)
    if n <= 0:
        return
    scaled = times(usual, n / usual.seen.n, ns, n)
    # Two standard errors are as many as there would be were all of their time like what was seen.
    at_most = looked.ops * ns / looked.ns
    yield replace(
        scaled,
        ops_variance=scaled.ops_variance + (max(0.0, at_most - scaled.ops) / SPREAD) ** 2,
        ns_variance=scaled.ns_variance + ((ns - scaled.ns) / SPREAD) ** 2,
    )
