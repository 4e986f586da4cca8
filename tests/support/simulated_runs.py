"""Runs of gaps with known ops, and what the op meter would have seen of them in random windows.

Pure arithmetic: no torch, no clock.
"""

import bisect
import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from instrumented_backend.observe.native.build import Seen, TimeRow
from instrumented_backend.observe.ops.cells import Cell
from instrumented_backend.observe.ops.meter import (
    BUDGET,
    FIRST_INTERVAL_S,
    INTERVAL_GROWTH,
    LONGEST_INTERVAL_S,
)
from instrumented_backend.observe.ops.observed import Kind, Mark, Observed, Part
from instrumented_backend.observe.windows import WindowSchedule

MS, S = 10**6, 10**9
LONG = 27  # gaps of this octave and longer are seen in slices
UNLIKE, FEW_KNOWN = 23, 8  # and of this one, if few are known
SLICE, APART = 4 * MS, 1.25  # of looks; as in `_op_windows.h`
LOOKS, SHORTEST_LOOK, LONGEST_LOOK = 0.004, 5 * MS, 50 * MS  # and in `work.py`
WAITED = 135 * MS  # for gaps that began in a window, when it has ended
COVERAGE = 0.1
CERTAIN, RANDOM = range(2)
MOST_WEIGHT = 10  # in `_op_state.h`, too


@dataclass(frozen=True)
class Gap:
    """Ops at equal distances, in all of it or while it is ``busy``."""

    ns: int
    ops: int
    op_ns: int = 5000
    to: int = 1
    position: int = 0  # in the program's loop
    busy: int = 0  # nanoseconds; 0: all
    seen_ns: int = 0  # how long it takes where a window sees it; 0: as long
    begin: tuple[int, int] = 0, 0  # of its time, and the ops in it: what a step has

    def ops_from(self, since: float, until: float) -> int:
        """How many begin in this part of it."""
        return self._before(until) - self._before(since)

    def _before(self, ns: float) -> int:
        """The n-th is at (n + 0.5) / ops, of those of its beginning and of the others."""
        begin_ns, at_first = self.begin
        others_ns, others = (self.busy or self.ns) - begin_ns, self.ops - at_first
        begun = min(at_first, max(0, int(ns / begin_ns * at_first + 0.5))) if begin_ns else 0
        return begun + min(others, max(0, int((ns - begin_ns) / others_ns * others + 0.5)))


Program = Callable[[random.Random], list[Gap]]


def constant(_: random.Random) -> list[Gap]:
    return [Gap(10 * MS, 20)] * 6000


def every_fiftieth_a_hundred_times_longer(_: random.Random) -> list[Gap]:
    return [Gap(1000 * MS, 3000) if i % 50 == 49 else Gap(10 * MS, 20) for i in range(2000)]


def every_fiftieth_ten_times_longer(_: random.Random) -> list[Gap]:
    return [Gap(100 * MS, 700) if i % 50 == 49 else Gap(10 * MS, 20) for i in range(5000)]


def drift(_: random.Random) -> list[Gap]:
    return [Gap(10 * MS + 1700 * i, 20 + i // 100) for i in range(6000)]


def ever_thicker(_: random.Random) -> list[Gap]:
    """Ever more ops in a step, as where a loop's bound grows."""
    return [Gap(5 * MS + 5000 * i, 5 + i // 20) for i in range(6000)]


def thicker_phases(_: random.Random) -> list[Gap]:
    """First one thing, then another with more ops in as much time, and the first again."""
    return [Gap(5 * MS, 30) if i // 10_000 == 1 else Gap(6 * MS, 6) for i in range(30_000)]


def two_kinds_in_one_octave(draw: random.Random) -> list[Gap]:
    return [draw.choice((Gap(9 * MS, 5), Gap(15 * MS, 40))) for _ in range(5000)]


def two_positions_in_a_loop(_: random.Random) -> list[Gap]:
    """As when one graph is called twice a step; what its first call sets up is there just once."""
    step = [Gap(9 * MS, 5), Gap(15 * MS, 40, position=1)]
    return [Gap(15 * MS, 900), *step[1:], *step * 2500]


def two_kinds_whose_lengths_overlap(draw: random.Random) -> list[Gap]:
    """In turn, in one position; windows make them longer by more than what is known of that."""

    def gap(mean_ns: float, ops: int) -> Gap:
        ns = mean_ns * draw.lognormvariate(0, 0.2)
        return Gap(int(ns), ops, op_ns=2000, seen_ns=int(1.05 * ns))

    return [gap(*kind) for _ in range(4000) for kind in ((600_000, 4), (1_150_000, 10))]


def rare_positions(draw: random.Random) -> list[Gap]:
    """One of a hundred others in each turn: too rare to be seen one by one."""
    others = [Gap((9 + i % 7) * MS, i % 9, position=1 + i) for i in range(100)]
    return [gap for _ in range(2500) for gap in (Gap(10 * MS, 20), draw.choice(others))]


def phases_in_one_octave(_: random.Random) -> list[Gap]:
    """For twenty steps so, for twenty steps otherwise."""
    return [Gap(9 * MS, 5) if i // 20 % 2 else Gap(15 * MS, 40) for i in range(5000)]


def evaluations_among_steps_held_up(draw: random.Random) -> list[Gap]:
    """Each hundredth gap is an evaluation; others are as long, where something held them up."""

    def step(i: int) -> Gap:
        if i % 100 == 99:
            return Gap(int(draw.uniform(3.5, 5.5) * MS), 266)
        held_up = draw.random() < 0.02
        return Gap(int(draw.uniform(2.5, 7.0) * MS) if held_up else 150_000, 10)

    return [gap for i in range(3000) for gap in (step(i), Gap(2 * MS, 25, to=2, position=1))]


def long_evaluations(draw: random.Random) -> list[Gap]:
    """All of as many ops, which take now more time, now less; at the end of long gaps' octave."""
    return [
        Gap(int(draw.uniform(120, 300) * MS), 5600) if i % 50 == 49 else Gap(3 * MS, 20)
        for i in range(1000)
    ]


def evaluations_after_steps(draw: random.Random) -> list[Gap]:
    """Each as `evaluations_that_differ`, after a step's ops, as most loops have them."""
    gaps = []
    for i in range(4000):
        ns, ops = int(draw.uniform(1.5, 3) * MS), draw.choice((20, 22))
        if i % 50 == 49:
            of_all = ns + int(draw.uniform(30, 120) * MS), ops + int(draw.uniform(1000, 4000))
            gaps.append(Gap(*of_all, begin=(ns, ops)))
        else:
            gaps.append(Gap(ns, ops))
    return gaps


def evaluations_that_differ(draw: random.Random) -> list[Gap]:
    """Steps, too, by a little."""
    return [
        Gap(int(draw.uniform(30, 120) * MS), int(draw.uniform(1000, 4000)))
        if i % 50 == 49
        else Gap(int(draw.uniform(1.5, 3) * MS), draw.choice((20, 22)))
        for i in range(4000)
    ]


def rare_evaluations(draw: random.Random) -> list[Gap]:
    """So seldom that chance may meet none of them."""
    return [
        Gap(int(draw.uniform(150, 400) * MS), int(draw.uniform(9000, 11_000)))
        if i % 1500 == 1499
        else Gap(2 * MS, 50)
        for i in range(9000)
    ]


def waits(draw: random.Random) -> list[Gap]:
    """Now and then a step waits, at its end: for a GPU, or for a checkpoint to be written."""
    return [
        Gap(int(draw.uniform(200, 900) * MS), 50, busy=2 * MS)
        if i % 1500 == 1499
        else Gap(2 * MS, 50)
        for i in range(9000)
    ]


def eager_half(_: random.Random) -> list[Gap]:
    return [Gap(10 * MS, 20)] * 1500 + [Gap(30 * S, 120_000)] + [Gap(10 * MS, 20)] * 1500


def uneven_eager_half(draw: random.Random) -> list[Gap]:
    """Long gaps of different densities."""
    loop = [Gap(10 * MS, 20)] * 300
    return [
        gap
        for _ in range(20)
        for gap in (*loop, Gap(int(draw.uniform(0.5, 3.0) * S), int(draw.uniform(500, 5000))))
    ]


def eager_between(draw: random.Random) -> list[Gap]:
    """Half of the time, now faster, now slower; the last gap ends with the program."""
    loop = [Gap(5 * MS, 20)] * 100
    long = [Gap(S // 2, int(draw.uniform(3700, 4300)), to=int(i < 7)) for i in range(8)]
    return [gap for each in long for gap in (*loop, each)]


def nothing_in_the_last_gap(_: random.Random) -> list[Gap]:
    """Evaluations, and in the end the program waits."""
    turn = [*[Gap(5 * MS, 20)] * 100, Gap(S, 3000)]
    return [*turn * 12, Gap(2 * S, 0, to=0)]


def gaps_that_snapshots_cut(_: random.Random) -> list[Gap]:
    """The pieces end nowhere; what is left of each gap ends at the next call."""
    pieces = [Gap(s * S, s * 2000, to=0) for s in (1, 2, 4, 8)]
    return [gap for _ in range(5) for gap in (*[Gap(5 * MS, 20)] * 200, *pieces, Gap(S, 2000))]


THICKER = {"ever_thicker", "thicker_phases"}  # at one time than at another
PROGRAMS: dict[str, Program] = {
    program.__name__: program
    for program in (
        constant,
        every_fiftieth_a_hundred_times_longer,
        every_fiftieth_ten_times_longer,
        drift,
        ever_thicker,
        thicker_phases,
        two_kinds_in_one_octave,
        two_positions_in_a_loop,
        two_kinds_whose_lengths_overlap,
        rare_positions,
        phases_in_one_octave,
        evaluations_among_steps_held_up,
        long_evaluations,
        evaluations_that_differ,
        evaluations_after_steps,
        rare_evaluations,
        waits,
        eager_half,
        uneven_eager_half,
        eager_between,
        nothing_in_the_last_gap,
        gaps_that_snapshots_cut,
    )
}


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
        for of, several in (("", rows), ("apart_", apart)):
            for name, one, other in SQUARES:
                setattr(seen, of + name, sum(row[one] * row[other] for row in several))
        seen.pairs, seen.weight = float(len(apart)), 1 / scale
        seen.each_ops2, seen.each_op_ns2 = (scale * square for square in self.squares)
        cells = [Cell("aten::add", 0, 0, ops, op_ns, {})] if ops else []
        return Part(seen, cells)


SQUARES = ("n2", 0, 0), ("ops2", 2, 2), ("ops_n", 2, 0), ("op_ns2", 3, 3), ("op_ns_n", 3, 0)


@dataclass
class Window:
    since: float
    until: float
    weight: float = 1.0  # of each of its gaps

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
        plan = schedule.next(spent_s, *((spent_s, open_s) if made else (BUDGET / COVERAGE, 1.0)))
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
                seen_slices[RANDOM].add(number, ns / S, ns, ops, ops * gap.op_ns)
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
