"""What the op meter would have seen of runs of gaps (`simulated_programs`) in random windows.

Pure arithmetic: no torch, no clock.
"""

import bisect
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from simulated_programs import MS, Gap, S

from instrumented_backend.observe.native.structs import Seen, TimeRow
from instrumented_backend.observe.ops.cells import Cell
from instrumented_backend.observe.ops.meter import (
    BUDGET,
    FIRST_INTERVAL_S,
    INTERVAL_GROWTH,
    LONGEST_INTERVAL_S,
)
from instrumented_backend.observe.ops.observed import Kind, Mark, Observed, Part
from instrumented_backend.observe.windows import WindowSchedule

LONG = 27  # gaps of this octave and longer are seen in slices
UNLIKE, FEW_KNOWN = 23, 8  # and of this one, if few are known
SLICE, APART = 4 * MS, 1.25  # of looks; as in `_op_windows.h`
LOOKS, SHORTEST_LOOK, LONGEST_LOOK = 0.004, 5 * MS, 50 * MS  # and in `work.py`
WAITED = 135 * MS  # for gaps that began in a window, when it has ended
COVERAGE = 0.1
WARM_UP_S = 0.1  # a window before those of chance, which has cost as much
CERTAIN, RANDOM = range(2)
MOST_WEIGHT = 10  # in `_op_state.h`, too


def _add_looked(slices: "_Sums", looked: "_Sums", found: "_Sums", gap: Gap, number: int) -> None:
    """All of the gap is as its slices are."""
    _, ns, ops, op_ns = (sum(row[i] for row in found.windows.values()) for i in range(4))
    times = gap.ns / ns
    looked.add(number, 1, gap.ns, ops * times, op_ns * times)
    looked.squares = (
        looked.squares[0] + (ops * times) ** 2,
        looked.squares[1] + (op_ns * times) ** 2,
    )
    for row in found.windows.values():
        slices.add(len(slices.windows), *row)


Place = tuple[int, int, int]  # position, to, octave


@dataclass
class _Sums:
    """Of one part: what each window saw: gaps or seconds, ns, ops, their ns."""

    windows: dict[int, list[float]] = field(default_factory=dict)
    squares: tuple[float, float] = 0.0, 0.0  # over the gaps
    gaps: float = 0.0  # or seconds, whatever they weigh
    weights: float = 0.0

    def add(self, window: int, *values: float, weight: float = 1.0) -> None:
        self.gaps += values[0]
        self.weights += weight * values[0]
        sums = self.windows.setdefault(window, [0.0] * 4)
        for i, value in enumerate(values):
            sums[i] += weight * value

    def add_gap(self, window: int, gap: Gap, weight: float = 1.0) -> None:
        op_ns = gap.ops * gap.op_ns
        self.add(window, 1, gap.ns, gap.ops, op_ns, weight=weight)
        own = weight * gap.ops**2, weight * op_ns**2
        self.squares = self.squares[0] + own[0], self.squares[1] + own[1]

    def part(self) -> Part:
        scale = self.gaps / self.weights if self.weights else 1.0
        rows = [[scale * value for value in row] for row in self.windows.values()]
        n, ns, ops, op_ns = (sum(row[i] for row in rows) for i in range(4))
        seen = Seen(n, ns, ops, op_ns, float(len(rows)))
        apart = [
            [(each - before) / 2**0.5 for each, before in zip(row, last, strict=True)]
            for row, last in zip(rows[1:], rows, strict=False)
        ]
        for of, several, names in (("", rows, (*SQUARES, *BY_TIME)), ("apart_", apart, SQUARES)):
            for name, one, other in names:
                setattr(seen, of + name, sum(row[one] * row[other] for row in several))
        seen.pairs, seen.weight = float(len(apart)), 1 / scale
        seen.each_ops2, seen.each_op_ns2 = (scale * square for square in self.squares)
        cells = [Cell("aten::add", 0, 0, ops, op_ns, {})] if ops else []
        return Part(seen, cells)


SQUARES = ("n2", 0, 0), ("ops2", 2, 2), ("ops_n", 2, 0), ("op_ns2", 3, 3), ("op_ns_n", 3, 0)
BY_TIME = ("ns2", 1, 1), ("op_ns_ns", 3, 1)


@dataclass
class Window:
    since: float
    until: float
    weight: float = 1.0  # of each of its gaps, and slices

    def weigh(self, stands_for_s: float, stood_for_s: float, open_s: float) -> float:
        """For how much of the run it stands; as `_op_state.h` has it."""
        own_s = (self.until - self.since) / S
        most_s = MOST_WEIGHT * own_s * (stood_for_s + stands_for_s) / open_s
        self.weight = min(stands_for_s, most_s) / own_s
        return self.weight * own_s


def windows(draw: random.Random, run: list[Gap], thicker: bool) -> list[Window]:
    """As they are planned where they cost so much that a tenth of the time is seen: or the more,
    the ``thicker`` ops come."""
    now_s, open_s, spent_s = 0.0, 0.0, 0.0
    ends = list(itertools.accumulate(gap.ns for gap in run))
    usual = sum(gap.ops for gap in run) / ends[-1]
    intervals = FIRST_INTERVAL_S, INTERVAL_GROWTH, LONGEST_INTERVAL_S
    schedule = WindowSchedule(*intervals, BUDGET, clock=lambda: now_s, chance=draw.random)
    made: list[Window] = []
    stood_for_s = 0.0
    while now_s * S < ends[-1]:
        plan = schedule.next(spent_s, WARM_UP_S * BUDGET / COVERAGE + spent_s, WARM_UP_S + open_s)
        if made:
            stood_for_s += made[-1].weigh(plan.last_stood_for_s, stood_for_s, open_s)
        opens_s = now_s + plan.wait_s
        now_s = opens_s + plan.length_s
        open_s += plan.length_s
        gap = run[min(len(run) - 1, bisect.bisect(ends, opens_s * S))]
        times = gap.ops / gap.ns / usual if thicker else 1.0
        spent_s += plan.length_s * BUDGET / COVERAGE * times
        made.append(Window(opens_s * S, now_s * S))
    made[-1].weight = stood_for_s / open_s
    mean = stood_for_s / open_s
    return [replace(window, weight=window.weight / mean) for window in made]


def looks(
    gap: Gap, start: int, wholes: dict[Place, list[_Sums]], slices: dict[Place, list[_Sums]]
) -> Iterator[tuple[float, float]]:
    """Windows for what is unlike all that was seen so far: from when to when in the gap."""
    look = min(max(LOOKS * start, SHORTEST_LOOK), LONGEST_LOOK)
    age: float = max(2**UNLIKE, look)
    while age < gap.ns:
        octave = int(age).bit_length() - 1
        known = 0
        for places, sets in ((wholes, (CERTAIN, RANDOM)), (slices, (RANDOM,))):
            for (_, _, other), parts in places.items():
                if other >= octave - 1:
                    known += sum(len(parts[each].windows) for each in sets)
        if known >= FEW_KNOWN:
            return
        yield age, min(gap.ns, age + SLICE)
        age = max(age + look, age * APART)


def observe(
    draw: random.Random, run: list[Gap], warm_up: int = 15, thicker: bool = False
) -> Observed:
    """The first gaps are in a certain window, the others seen as chance has it; ``thicker``: less
    of the time in which ops come thick."""
    wholes: dict[Place, list[_Sums]] = {}
    slices: dict[Place, list[_Sums]] = {}
    looked: dict[Place, _Sums] = {}
    by_chance: dict[tuple[int, int], _Sums] = {}
    firsts: dict[tuple[int, int, int], _Sums] = {}
    population: dict[tuple[int, int, int], list[int]] = {}
    edges: set[tuple[int, int]] = set()
    end = sum(gap.ns for gap in run)
    open_at = windows(draw, run, thicker)
    start, first = 0, 0
    for i, gap in enumerate(run):
        is_seen = gap.seen_ns > 0 and any(one.since <= start < one.until for one in open_at)
        ns = gap.seen_ns if is_seen else gap.ns
        kind = gap.position, gap.to, ns.bit_length() - 1
        sums = population.setdefault(kind, [0, 0])
        sums[0] += 1
        sums[1] += gap.ns
        seen_whole = wholes.setdefault(kind, [_Sums(), _Sums()])
        seen_slices = slices.setdefault(kind, [_Sums(), _Sums()])
        while first < len(open_at) and open_at[first].until <= start:
            first += 1
        is_new = kind[:2] not in edges
        edges.add(kind[:2])
        if i < warm_up and is_new:
            firsts[kind] = _Sums()
            firsts[kind].add_gap(0, gap)
        elif i < warm_up:
            seen_whole[CERTAIN].add_gap(0, gap)
        else:
            for number in range(first, len(open_at)):
                since, until = open_at[number].since, open_at[number].until
                weight = open_at[number].weight
                if since >= start + gap.ns:
                    break
                began = since <= start < until
                if began and (kind[2] < LONG or start + gap.ns <= until + WAITED):
                    seen_whole[RANDOM].add_gap(number, gap, weight)
                    if kind[2] < LONG:
                        by_chance.setdefault(kind[:2], _Sums()).add_gap(number, gap, weight)
                    continue
                if kind[2] < LONG:
                    continue
                since, until = max(since, start), min(until, start + gap.ns)
                ops = gap.ops_from(since - start, until - start)
                ns = until - since
                sums_of = ns / S, ns, ops, ops * gap.op_ns
                seen_slices[RANDOM].add(number, *sums_of, weight=weight)
            found = _Sums()
            for since, until in looks(gap, start, wholes, slices):
                ops, ns = gap.ops_from(since, until), until - since
                found.add(len(found.windows), ns / S, ns, ops, ops * gap.op_ns)
            if found.windows:
                _add_looked(seen_slices[CERTAIN], looked.setdefault(kind, _Sums()), found, gap, i)
        start += gap.ns
    kinds = []
    for kind, (n, ns) in population.items():
        parts = [sums.part() for sums in (*wholes[kind], *slices[kind])]
        first = firsts.get(kind, _Sums()).part()
        whole, in_slices = (parts[0], parts[1]), (parts[2], parts[3])
        kinds.append(
            Kind(
                *(1000 * kind[0] + kind[1], 0, *kind[1:], (n, 0), (ns, 0), whole, in_slices, first),
                looked=looked.get(kind, _Sums()).part().seen,
                by_chance=by_chance.get(kind[:2], _Sums()).part().seen,
            )
        )
    loose = Part(Seen(), []), Part(Seen(), [])
    return Observed([Mark(1, None, False)], kinds, loose, {}, TimeRow(), [], False, end)
