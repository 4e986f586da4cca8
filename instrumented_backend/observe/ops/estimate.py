"""From what the op meter's windows saw to the whole run.

How many gaps there were of each kind, and how long they took, is known for all of the run. What ops
are in them was seen in windows. Gaps seen in certain windows stand for themselves: first steps
allocate optimizer state and load kernels. For the others of their kind stand those that random
windows saw, as many times as there were others; or, where these saw too few, those of certain
windows; or gaps of the nearest length. Long gaps were seen in slices, which stand for as much more
time as the gaps lasted.

A kind of gap is from where to where, and which octave its length is in: a step with an evaluation
after it is none like the others, and a loop whose steps are all alike comes out exactly.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from instrumented_backend.observe.native.build import Seen
from instrumented_backend.observe.ops.lines import UNKNOWN, Line
from instrumented_backend.observe.ops.observed import Cell, Kind, Observed, Part

SPREAD = 2.0  # standard errors, to either side
LONG = 27  # from this octave on, gaps are seen in slices; `_op_meter.cpp` says the same
SKEW = 1.15  # what windows see is spread less evenly than Student's t has it
ENOUGH = 3  # gaps in random windows, for those of certain windows not to be needed
# For few windows, twice the standard error is less than 19 in 20 (Student's t).
_STUDENT = (12.7, 4.3, 3.2, 2.8, 2.6, 2.45, 2.4, 2.3, 2.3)


@dataclass
class OpSums:
    """Ops and their time."""

    ops: float = 0.0
    ns: float = 0.0

    def add(self, ops: float, ns: float) -> None:
        self.ops += ops
        self.ns += ns


@dataclass
class Sampled(OpSums):
    """The same, with the variance of each, 0 where all were seen."""

    ops_variance: float = 0.0
    ns_variance: float = 0.0

    @property
    def ops_error(self) -> float:
        return math.sqrt(self.ops_variance)

    @property
    def ns_error(self) -> float:
        return math.sqrt(self.ns_variance)


@dataclass
class Estimate:
    """The run's totals."""

    exact: bool
    eager: Sampled = field(default_factory=Sampled)
    main_ns: Sampled = field(default_factory=Sampled)  # of the main thread, data loading apart
    other_ns: Sampled = field(default_factory=Sampled)  # of other threads, data loading apart
    unseen_ns: float = 0.0  # in gaps that nothing that was seen is like
    data_ns: tuple[int, int] = (0, 0)  # in DataLoaders: on the main thread, on others
    by_name: dict[str, Sampled] = field(default_factory=dict)
    by_line: dict[tuple[str, Line], Sampled] = field(default_factory=dict)
    by_place: dict[tuple[int, Line], OpSums] = field(default_factory=dict)
    """By the region that was called last, and line."""


@dataclass(frozen=True)
class _Scaled:
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


def estimate(observed: Observed) -> Estimate:
    result = Estimate(exact=observed.whole and not observed.lost)
    lines = _Lines(observed)
    data_ns = [0, 0]
    for kind, scaled in _all_scaled(observed.kinds):
        mark = observed.marks[kind.mark]
        on_main = kind.ns[0] / sum(kind.ns) if sum(kind.ns) else 1.0
        for each in scaled:
            _add(result, each, lines, mark.region)
            if not mark.in_data:
                _add_time(result.main_ns, each, on_main)
                _add_time(result.other_ns, each, 1 - on_main)
        if not any(each.part.seen.n for each in scaled):
            _add_unseen(result, kind, on_main)
        if mark.in_data:
            for i in range(2):
                data_ns[i] += kind.ns[i]
    for each in _loose(observed):
        _add(result, each, lines, 0)
        _add_time(result.other_ns, each, 1.0)
    result.data_ns = data_ns[0], data_ns[1]
    return result


# --- How often what was seen happened -----------------------------------------------------------


def _all_scaled(kinds: Iterable[Kind]) -> Iterator[tuple[Kind, list[_Scaled]]]:
    by_mark: dict[int, list[Kind]] = {}
    for kind in kinds:
        by_mark.setdefault(kind.mark, []).append(kind)
    for after in by_mark.values():
        for kind in after:
            yield kind, list(_of_kind(kind, after))


def _of_kind(kind: Kind, after: list[Kind]) -> Iterator[_Scaled]:
    """What stands for all gaps of this kind; ``after`` has all that begin at its mark."""
    certain = kind.whole[0]
    yield _Scaled(certain, 1.0, 1.0)
    n = sum(kind.n) - certain.seen.n
    ns = max(0.0, sum(kind.ns) - certain.seen.ns)
    if kind.octave >= LONG:
        yield from _of_long(kind, ns)
    elif n > 0:
        yield from _of_others(kind, n, ns, after)


def _of_others(kind: Kind, n: float, ns: float, after: list[Kind]) -> Iterator[_Scaled]:
    """``n`` gaps that took ``ns`` and were not seen in certain windows."""
    random = kind.whole[1]
    if random.seen.n >= ENOUGH or (random.seen.n and not kind.whole[0].seen.n):
        yield _times(random, n / random.seen.n, ns, n - random.seen.n)
        return
    if kind.whole[0].seen.n:
        # Both, as if the certain window had been one of the others.
        yield _times(random, 1.0, ns, 0.0)
        left = n - random.seen.n
        if left > 0:
            yield _times(kind.whole[0], left / kind.whole[0].seen.n, ns, left)
        return
    near = _nearest(kind, [other for other in after if other.to == kind.to])
    near = near or _nearest(kind, after)
    if near is not None:
        scaled = _times(near, n / near.seen.n, ns, n)
        if kind.octave <= _octave_of(near):
            yield scaled
            return
        # What made these longer may have been ops like the others, or none: two standard errors
        # are as many as go into the time.
        more = scaled.ops * max(0.0, ns * near.seen.n / (n * near.seen.ns) - 1.0)
        apart_ns = (ns - scaled.ns) / SPREAD
        yield replace(
            scaled,
            ops_variance=scaled.ops_variance + (more / SPREAD) ** 2,
            ns_variance=scaled.ns_variance + (apart_ns / 2) ** 2,
        )


def _octave_of(part: Part) -> int:
    return int(math.log2(max(1.0, part.seen.ns / part.seen.n)))


def _nearest(kind: Kind, others: list[Kind]) -> Part | None:
    """Of those that were seen: one octave longer, as windows make them, or shorter, as most of
    those are that something held up, or longer."""
    parts = [(other.octave, part) for other in others for part in other.whole if part.seen.n]
    by_octave = dict(sorted(parts, key=lambda item: item[1].seen.n))  # the one most often seen
    shorter = [octave for octave in by_octave if octave < kind.octave]
    longer = [octave for octave in by_octave if octave > kind.octave]
    if kind.octave + 1 in by_octave:
        return by_octave[kind.octave + 1]
    if shorter:
        return by_octave[max(shorter)]
    return by_octave[min(longer)] if longer else None


def _of_long(kind: Kind, ns: float) -> Iterator[_Scaled]:
    """Seen in slices: what was seen of whole ones by chance is one more."""
    certain, random = kind.slices
    yield _Scaled(certain, 1.0, 1.0)
    ns = max(0.0, ns - certain.seen.ns)
    seen_ns = random.seen.ns + kind.whole[1].seen.ns
    if not ns:
        return
    if seen_ns:
        for part in (random, kind.whole[1]):
            if part.seen.ns:
                share = part.seen.ns / seen_ns
                factor = max(1.0, ns * share / part.seen.ns)
                scaled = _times(part, factor, ns * share, part.seen.n * (factor - 1))
                yield scaled if part is not random else _with_edges(scaled)
    else:
        known = max((certain, kind.whole[0]), key=lambda part: part.seen.ns)
        if known.seen.ns:
            factor = ns / known.seen.ns
            yield _times(known, factor, ns, known.seen.n * factor)


def _with_edges(scaled: _Scaled) -> _Scaled:
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


def _times(part: Part, factor: float, limit_ns: float, extrapolated: float) -> _Scaled:
    """``part`` times ``factor``; its ops take no longer than ``limit_ns`` in all.

    ``extrapolated`` of the gaps, or seconds, were not seen.
    """
    ns_factor = factor
    if part.seen.op_ns * factor > limit_ns:
        ns_factor = limit_ns / part.seen.op_ns
    share = extrapolated / (factor * part.seen.n) if factor and part.seen.n else 0.0
    return _Scaled(
        part,
        factor,
        ns_factor,
        _variance(part.seen, "ops", factor) * share,
        _variance(part.seen, "op_ns", ns_factor) * share,
    )


def _variance(seen: Seen, name: str, factor: float) -> float:
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


def _loose(observed: Observed) -> Iterator[_Scaled]:
    """Ops of threads without marks: windows saw them for a part of the time."""
    certain, random = observed.loose
    certain_ns, random_ns = observed.times.open_ns
    if certain.cells:
        yield _Scaled(_summed(certain), 1.0, 1.0)
    left_ns = 0.0 if observed.whole else max(0.0, observed.elapsed_ns - certain_ns)
    source, seen_ns = (random, random_ns) if random_ns else (certain, certain_ns)
    if source.cells and seen_ns and left_ns:
        part = _summed(source)
        factor = max(1.0, left_ns / seen_ns) if random_ns else left_ns / seen_ns
        variance = factor * factor * part.seen.ops
        per_op = part.seen.op_ns / part.seen.ops
        yield _Scaled(part, factor, factor, variance, variance * per_op * per_op)


def _summed(part: Part) -> Part:
    """With the sums of its cells, which for threads without marks nobody keeps."""
    ops = float(sum(cell.count for cell in part.cells))
    op_ns = float(sum(cell.time_ns for cell in part.cells))
    return Part(Seen(n=1.0, ops=ops, op_ns=op_ns), part.cells)


# --- Adding up ----------------------------------------------------------------------------------


class _Lines:
    """On which lines the ops of a cell were, by the samples taken of them."""

    def __init__(self, observed: Observed) -> None:
        self._lines = observed.lines
        self._anywhere: dict[tuple[int, int], dict[int, tuple[float, float]]] = {}
        parts = [part for kind in observed.kinds for part in (*kind.whole, *kind.slices)]
        for part in (*parts, *observed.loose):
            for cell in part.cells:
                known = self._anywhere.setdefault((cell.mark, cell.slot), {})
                for line, (weight, ns) in cell.lines.items():
                    before = known.get(line, (0.0, 0.0))
                    known[line] = before[0] + weight, before[1] + ns

    def of(self, cell: Cell) -> list[tuple[Line, float, float]]:
        """Each line with its share of the cell's ops, and of their time."""
        weights = cell.lines or self._anywhere.get((cell.mark, cell.slot), {})
        totals = [sum(sums[i] for sums in weights.values()) for i in range(2)]
        if not weights or not totals[0]:
            return [(UNKNOWN, 1.0, 1.0)]
        return [
            (self._line(number), weight / totals[0], ns / totals[1] if totals[1] else 1.0)
            for number, (weight, ns) in weights.items()
        ]

    def _line(self, number: int) -> Line:
        return self._lines[number] if number < len(self._lines) else UNKNOWN


def _add_time(sums: Sampled, scaled: _Scaled, share: float) -> None:
    sums.add(scaled.ops * share, scaled.ns * share)
    sums.ops_variance += scaled.ops_variance * share * share
    sums.ns_variance += scaled.ns_variance * share * share


def _add_unseen(result: Estimate, kind: Kind, on_main: float) -> None:
    """What nothing is like may be ops or not: two standard errors are all of it."""
    ns = sum(kind.ns)
    result.unseen_ns += ns
    result.eager.ns_variance += (ns / SPREAD) ** 2
    result.main_ns.ns_variance += (ns * on_main / SPREAD) ** 2
    result.other_ns.ns_variance += (ns * (1 - on_main) / SPREAD) ** 2


def _add(result: Estimate, scaled: _Scaled, lines: _Lines, region: int) -> None:
    _add_time(result.eager, scaled, 1.0)
    seen = scaled.part.seen
    for cell in scaled.part.cells:
        ops, ns = cell.count * scaled.ops_factor, cell.time_ns * scaled.ns_factor
        # As uncertain as all of the part is; and besides, an op that is not in each of the gaps
        # was in those that were seen by chance.
        variance = scaled.ops_variance * (cell.count / seen.ops) ** 2 if seen.ops else 0.0
        if scaled.ops_factor > 1 and cell.count % max(1.0, seen.n):
            variance += scaled.ops_factor * (scaled.ops_factor - 1) * cell.count
        named = result.by_name.setdefault(cell.name, Sampled())
        named.add(ops, ns)
        named.ops_variance += variance
        for line, ops_share, ns_share in lines.of(cell):
            on_line = result.by_line.setdefault((cell.name, line), Sampled())
            on_line.add(ops * ops_share, ns * ns_share)
            on_line.ops_variance += variance * ops_share
            place = result.by_place.setdefault((region, line), OpSums())
            place.add(ops * ops_share, ns * ns_share)
