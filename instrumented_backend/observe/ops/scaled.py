"""Parts that stand for more than was seen of them: how many times, and how uncertain that is."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from instrumented_backend.observe.native.structs import Seen
from instrumented_backend.observe.ops.cells import Cell, Together
from instrumented_backend.observe.ops.observed import Kind, Part
from instrumented_backend.observe.ops.spread import (
    MANY,
    SPREAD,
    variance,
    variance_by_time,
    variance_of_windows,
)

CUT = 0  # where a gap ends that no mark ends: its thread is over, or what there was of it was read
LONG = 27  # from this octave on, gaps are seen in slices; `_op_state.h` says the same
ENOUGH = 3  # gaps in random windows, for those of certain windows not to be needed
REACH = 6  # octaves by which something may hold a gap up, such as other programs on its core
FAR = 4  # octaves by which something seldom does, so that an evaluation is as likely
UNLIKE = 23  # from this octave on, gaps that are so much longer than those seen have slices, too
FEW = 8  # windows
ABOUT = 0.1  # by what part of their mean the ops of gaps may differ that slices tell of
ALIKE = 0.02  # by what part of their mean the ops of long gaps may differ, and be alike
THE_SAME = 0.001  # numbers of ops
# By what part one is off that was seen whole, or nearly to its end, or looked at.
WHOLE, NEARLY, LOOKED = 0.01, 0.03, 0.15
SLICES_TELL = 0.08  # by what part all slices together may be wrong
WAITED = 0.25  # of gaps in which the host waits for a GPU: by what part windows may shorten them
SMALL_OP_NS = 10_000  # few take less, with the Python that calls them


@dataclass(frozen=True)
class Doubt:
    """Some of the gaps may be like others: with which variance, how many.

    Or they may have what others have ``besides`` what was seen.
    """

    others: Part
    variance: float
    besides: bool = False


class _Calibration(NamedTuple):
    """Times as many ops, times as long in all; the share of those whose number is not known."""

    ops: float = 1.0
    ns: float = 1.0
    unknown: float = 1.0


@dataclass(frozen=True)
class Scaled:
    """A part that stands for more than itself: how many times, its ops and their time."""

    part: Part
    ops_factor: float
    ns_factor: float
    ops_variance: float = 0.0
    ns_variance: float = 0.0
    doubts: tuple[Doubt, ...] = ()
    in_slices: bool = False  # of long gaps, and not in whole ones
    times: Mapping[str, float] = field(default_factory=dict)
    """By name, how much more often than that its ops count, for their number to come out."""

    @property
    def ops(self) -> float:
        return float(self.part.seen.ops * self.ops_factor * self._calibration.ops)

    @property
    def ns(self) -> float:
        return float(self.part.seen.op_ns * self.ns_factor * self._calibration.ns)

    @property
    def doubted_ops_variance(self) -> float:
        """Of those of which the number is not known."""
        variance = self.ops_variance + self._doubt(lambda part: part.seen.ops)
        return variance * self._calibration.unknown**2

    @property
    def doubted_ns_variance(self) -> float:
        variance = self.ns_variance + self._doubt(lambda part: part.seen.op_ns)
        return variance * self._calibration.ns**2

    @cached_property
    def _calibration(self) -> "_Calibration":
        if not self.times:
            return _Calibration()
        ops = ns = new_ops = new_ns = unknown = 0.0
        for cell in self.part.cells:
            times = self.times.get(cell.name, 1.0)
            ops, ns = ops + cell.count, ns + cell.time_ns
            new_ops, new_ns = new_ops + times * cell.count, new_ns + times * cell.time_ns
            unknown += 0.0 if cell.name in self.times else cell.count
        if not ops:
            return _Calibration()
        return _Calibration(new_ops / ops, new_ns / ns if ns else 1.0, unknown / ops)

    def clump_of(self, cell: Cell) -> float:
        """The variance of a cell's number of ops, if one slice may have seen all of that name.

        Such as what only the beginning of a long gap has: two standard errors are all that were not
        seen. More than a window's share of the ops are of several.
        """
        if not self.in_slices or self.ops_factor <= 1 or not cell.count:
            return 0.0
        seen, count = self.part.seen, self.part.counts[cell.name]
        if count * seen.windows > seen.ops:
            return 0.0
        of_all = float(count * (self.ops_factor - 1) / SPREAD) ** 2
        return of_all * cell.count / count

    def doubt_of(self, name: str) -> float:
        """The variance that doubts add to the number of one op."""
        return self._doubt(lambda part: part.counts[name])

    def _doubt(self, value: Callable[[Part], float]) -> float:
        """By how much gaps like the others would differ. One of the doubts comes true at most."""
        if not self.doubts:
            return 0.0
        own = value(self.part) / self.part.seen.n

        def apart(doubt: Doubt) -> float:
            each = value(doubt.others) / doubt.others.seen.n
            return float(doubt.variance * (each - (0.0 if doubt.besides else own)) ** 2)

        return max(map(apart, self.doubts))


@dataclass
class Group:
    """Gaps of one kind, wherever in the program's loop they were: `kinds` has these apart."""

    to: int
    octave: int
    kinds: list[Kind]
    n: tuple[int, int] = field(init=False)
    ns: tuple[int, int] = field(init=False)
    own_ns: int = field(init=False)  # without what went into seeing ops
    first: Part = field(init=False)
    certain: Part = field(init=False)
    random: Part = field(init=False)
    looked: Seen = field(init=False)
    met: Seen = field(init=False)
    ended: Seen = field(init=False)

    def __post_init__(self) -> None:
        kinds = self.kinds
        self.n = sum(kind.n[0] for kind in kinds), sum(kind.n[1] for kind in kinds)
        self.ns = sum(kind.ns[0] for kind in kinds), sum(kind.ns[1] for kind in kinds)
        self.own_ns = sum(kind.own_ns for kind in kinds)
        self.first = together([kind.first for kind in kinds])
        self.certain = together([kind.whole[0] for kind in kinds])
        self.random = together([kind.whole[1] for kind in kinds])
        self.looked = all_seen(kind.looked for kind in kinds)
        self.met = all_seen(kind.met for kind in kinds)
        self.ended = all_seen(kind.ended for kind in kinds)

    @cached_property
    def slices(self) -> tuple[Part, Part]:
        certain, random = (together([kind.slices[i] for kind in self.kinds]) for i in range(2))
        return certain, random


def all_seen(several: Iterable[Seen]) -> Seen:
    total = Seen()
    for seen in several:
        total.add(seen)
    return total


def together(parts: list[Part]) -> Part:
    """What several kinds of gap are, taken as one."""
    if len(parts) > 1:
        parts = [part for part in parts if part.seen.n or part.cells]
    if len(parts) == 1:
        return parts[0]
    seen = all_seen(part.seen for part in parts)
    return Part(seen, Together([(part.cells, part.seen.times_in(seen)) for part in parts]))


def deviation(seen: Seen, name: str = "ops") -> float:
    """The standard deviation of the ops of each gap, as a share of their mean; 0 without ops."""
    mean = getattr(seen, name) / seen.n if seen.n else 0.0
    squares = getattr(seen, f"each_{name}2")
    return math.sqrt(max(0.0, squares / seen.n - mean * mean)) / mean if mean else 0.0


def are_alike(group: Group) -> bool:
    """Were as many ops in each that was seen whole, and were there two or more?"""
    seen = gaps_seen_whole(group)
    return seen.n >= 2 and deviation(seen) <= ALIKE


def are_the_same(group: Group) -> bool:
    """Did chance see enough of them whole, and had these the same number of ops?

    Then slices tell nothing more. A loop that lasts for so long goes round more often at one time
    than at another.
    """
    return group.random.seen.n >= ENOUGH and have_the_same(gaps_seen_whole(group))


def have_the_same(seen: Seen) -> bool:
    """Had each the same number of ops, and were there two or more?"""
    return seen.n >= 2 and deviation(seen) <= THE_SAME


def gaps_seen_whole(group: Group) -> Seen:
    return all_seen([group.certain.seen, group.random.seen])


def are_bare(group: Group) -> bool:
    """Had none of its gaps any ops when it was first looked at, and were there enough?

    Such are pauses, or have all of their ops at their beginning.
    """
    return group.looked.n >= ENOUGH and not group.met.n


def of_others(certain: Part, random: Part, n: float, ns: float) -> Iterator[Scaled]:
    """``n`` gaps that took ``ns`` and were not seen in certain windows."""
    if random.seen.n >= ENOUGH or not certain.seen.n:
        yield times(random, n / random.seen.n, ns, n - random.seen.n)
        return
    # Both, as if the certain window had been one of the others.
    yield times(random, 1.0, ns, 0.0)
    left = n - random.seen.n
    if left > 0:
        yield times(certain, left / certain.seen.n, ns, left)


def in_their_time(scaled: Scaled, ns: float) -> Scaled:
    """Gaps that took ``ns``, in which the host waits for a GPU.

    Where a window slows the host down, it waits for that much less: as large a part of their time
    is in ops. Not where they are of another length altogether.
    """
    in_windows_ns = scaled.ops_factor * scaled.part.seen.ns
    longer = ns / in_windows_ns if in_windows_ns else 0.0
    if abs(longer - 1) > WAITED:
        return scaled
    return replace(
        scaled, ns_factor=scaled.ns_factor * longer, ns_variance=scaled.ns_variance * longer**2
    )


def by_time(scaled: Scaled, ns: float) -> Scaled:
    """Gaps that took ``ns``, as large a part of it in ops as of those that windows saw.

    Where a machine is slower at one time than at another, both take longer, and windows may have
    met more of the one than of the other. Not where gaps differ in what else is in them: whichever
    varies less from window to window.
    """
    seen = scaled.part.seen
    if seen.windows < MANY or not seen.op_ns or not seen.ns:
        return scaled
    factor = min(ns / seen.ns, ns / seen.op_ns)
    variance_ns = variance_by_time(seen, factor)
    if variance_ns >= variance_of_windows(seen, "op_ns", scaled.ns_factor):
        return scaled
    unseen = 1 - 1 / max(1.0, scaled.ops_factor)
    return replace(scaled, ns_factor=factor, ns_variance=variance_ns * unseen)


def as_pieces(whole: Part, ns: float) -> Scaled:
    """Gaps that took ``ns``, as pieces of a longer one, or of one that was itself cut into pieces.

    Two standard errors are as many ops as go into their time.
    """
    scaled = times(whole, ns / whole.seen.ns, ns, 0.0)
    return replace(scaled, ops_variance=(max(scaled.ops, ns / SMALL_OP_NS) / SPREAD) ** 2)


def like(near: Part, n: float, ns: float, octave: int) -> Scaled:
    """``n`` gaps that took ``ns``, by what was seen of others that are of another length."""
    longer = _octave_of(near) - octave
    if longer > (1 if octave >= LONG else REACH):
        return as_pieces(near, ns)  # nothing holds up gaps by so much
    scaled = times(near, n / near.seen.n, ns, n)
    if longer >= 0:
        return scaled
    # What made these longer may have been ops like the others, or none: two standard errors are as
    # many as go into the time. Little holds up gaps by much, so then it may all be small ops.
    more = scaled.ops * max(0.0, ns * near.seen.n / (n * max(1.0, near.seen.ns)) - 1.0)
    apart_ns = ns - scaled.ns
    if longer > -FAR:
        apart_ns /= 2
    else:
        more = max(more, ns / SMALL_OP_NS)
    return replace(
        scaled,
        ops_variance=scaled.ops_variance + (more / SPREAD) ** 2,
        ns_variance=scaled.ns_variance + (apart_ns / SPREAD) ** 2,
    )


def beginnings(shorter: Part | None, n: float) -> tuple[Doubt, ...]:
    """What ``n`` gaps may begin with, as ``shorter`` ones after the same mark: an optimizer's step.

    Slices may have missed it, or met it. Two standard errors are all of it.
    """
    return () if shorter is None else (Doubt(shorter, (n / SPREAD) ** 2, besides=True),)


def far_shorter(group: Group, after: Iterable[Group]) -> Part | None:
    """What was seen of gaps ``after`` the same mark that its own are far longer than."""
    known = by_octave(other for other in after if other.octave <= group.octave - FAR)
    return nearest(group.octave, known)


def _octave_of(part: Part) -> int:
    return int(math.log2(max(1.0, part.seen.ns / part.seen.n)))


def by_octave(others: Iterable[Group]) -> dict[int, Part]:
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


def nearest(octave: int, by_octave: dict[int, Part]) -> Part | None:
    """One octave longer, as windows make them, or shorter, as most of those are that something
    held up, or longer."""
    shorter = [other for other in by_octave if other < octave]
    longer = [other for other in by_octave if other > octave]
    if octave + 1 in by_octave:
        return by_octave[octave + 1]
    if shorter:
        return by_octave[max(shorter)]
    return by_octave[min(longer)] if longer else None


def times(part: Part, factor: float, limit_ns: float, extrapolated: float) -> Scaled:
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
