"""Runs of gaps with known ops, and what the op meter would have seen of them in random windows.

Pure arithmetic: no torch, no clock.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from instrumented_backend.observe.native.build import Seen, TimeRow
from instrumented_backend.observe.ops.observed import Cell, Kind, Mark, Observed, Part

MS, S = 10**6, 10**9
LONG = 27  # gaps of this octave and longer are seen in slices
COVERAGE = 0.1
CERTAIN, RANDOM = range(2)


@dataclass(frozen=True)
class Gap:
    """Ops at equal distances."""

    ns: int
    ops: int
    op_ns: int = 5000
    to: int = 1

    def ops_from(self, since: float, until: float) -> int:
        """How many begin in this part of it."""
        return self._before(until) - self._before(since)

    def _before(self, ns: float) -> int:
        """The n-th is at (n + 0.5) / ops."""
        return min(self.ops, max(0, int(ns / self.ns * self.ops + 0.5)))


Program = Callable[[random.Random], list[Gap]]


def constant(_: random.Random) -> list[Gap]:
    return [Gap(10 * MS, 20)] * 6000


def every_fiftieth_a_hundred_times_longer(_: random.Random) -> list[Gap]:
    return [Gap(1000 * MS, 3000) if i % 50 == 49 else Gap(10 * MS, 20) for i in range(2000)]


def every_fiftieth_ten_times_longer(_: random.Random) -> list[Gap]:
    return [Gap(100 * MS, 700) if i % 50 == 49 else Gap(10 * MS, 20) for i in range(5000)]


def drift(_: random.Random) -> list[Gap]:
    return [Gap(10 * MS + 1700 * i, 20 + i // 100) for i in range(6000)]


def two_kinds_in_one_octave(draw: random.Random) -> list[Gap]:
    return [draw.choice((Gap(9 * MS, 5), Gap(15 * MS, 40))) for _ in range(5000)]


def phases_in_one_octave(_: random.Random) -> list[Gap]:
    """For twenty steps so, for twenty steps otherwise."""
    return [Gap(9 * MS, 5) if i // 20 % 2 else Gap(15 * MS, 40) for i in range(5000)]


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


PROGRAMS: tuple[Program, ...] = (
    constant,
    every_fiftieth_a_hundred_times_longer,
    every_fiftieth_ten_times_longer,
    drift,
    two_kinds_in_one_octave,
    phases_in_one_octave,
    eager_half,
    uneven_eager_half,
)


@dataclass
class _Sums:
    """Of one part: what each window saw: gaps or seconds, ns, ops, their ns."""

    windows: dict[int, list[float]] = field(default_factory=dict)

    def add(self, window: int, *values: float) -> None:
        sums = self.windows.setdefault(window, [0.0] * 4)
        for i, value in enumerate(values):
            sums[i] += value

    def part(self) -> Part:
        rows = list(self.windows.values())
        n, ns, ops, op_ns = (sum(row[i] for row in rows) for i in range(4))
        seen = Seen(n, ns, ops, op_ns, float(len(rows)))
        seen.n2 = sum(row[0] ** 2 for row in rows)
        seen.ops2 = sum(row[2] ** 2 for row in rows)
        seen.ops_n = sum(row[2] * row[0] for row in rows)
        seen.op_ns2 = sum(row[3] ** 2 for row in rows)
        seen.op_ns_n = sum(row[3] * row[0] for row in rows)
        cells = [Cell("aten::add", 0, 0, round(ops), round(op_ns), {})] if ops else []
        return Part(seen, cells)


def windows(draw: random.Random, end_ns: float) -> Iterator[tuple[float, float]]:
    """One in each interval, from 0.25 s on; they grow by 2 % up to 5 s."""
    start, interval = 0.0, 0.25 * S
    while start < end_ns:
        length = COVERAGE * interval
        at = start + draw.random() * (interval - length)
        yield at, at + length
        start, interval = start + interval, min(1.02 * interval, 5.0 * S)


def observe(draw: random.Random, run: list[Gap], warm_up: int = 15) -> Observed:
    """The first gaps are in a certain window, the others seen as chance has it."""
    wholes: dict[tuple[int, int], list[_Sums]] = {}
    slices: dict[tuple[int, int], list[_Sums]] = {}
    population: dict[tuple[int, int], list[int]] = {}
    end = sum(gap.ns for gap in run)
    open_at = list(windows(draw, end))
    start, first = 0, 0
    for i, gap in enumerate(run):
        kind = gap.to, gap.ns.bit_length() - 1
        sums = population.setdefault(kind, [0, 0])
        sums[0] += 1
        sums[1] += gap.ns
        whole = wholes.setdefault(kind, [_Sums(), _Sums()])
        in_slices = slices.setdefault(kind, [_Sums(), _Sums()])
        while first < len(open_at) and open_at[first][1] <= start:
            first += 1
        if i < warm_up:
            whole[CERTAIN].add(0, 1, gap.ns, gap.ops, gap.ops * gap.op_ns)
        else:
            for number in range(first, len(open_at)):
                since, until = open_at[number]
                if since >= start + gap.ns:
                    break
                if kind[1] < LONG:
                    if since <= start < until:
                        whole[RANDOM].add(number, 1, gap.ns, gap.ops, gap.ops * gap.op_ns)
                    continue
                since, until = max(since, start), min(until, start + gap.ns)
                ops = gap.ops_from(since - start, until - start)
                ns = until - since
                in_slices[RANDOM].add(number, ns / S, ns, ops, ops * gap.op_ns)
        start += gap.ns
    kinds = []
    for (to, octave), (n, ns) in population.items():
        parts = [sums.part() for sums in (*wholes[to, octave], *slices[to, octave])]
        kinds.append(
            Kind(0, to, octave, (n, 0), (ns, 0), (parts[0], parts[1]), (parts[2], parts[3]))
        )
    loose = Part(Seen(), []), Part(Seen(), [])
    return Observed([Mark(1, None, False)], kinds, loose, {}, TimeRow(), [], False, end)
