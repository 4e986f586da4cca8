"""Programs as runs of gaps with known ops, for `simulated_runs`."""

import random
from collections.abc import Callable
from dataclasses import dataclass

MS, S = 10**6, 10**9


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


def slower_at_times(draw: random.Random) -> list[Gap]:
    """All of a step takes longer while something else keeps the machine busy."""

    def gap(times_longer: float) -> Gap:
        longer = times_longer * draw.uniform(0.95, 1.05)
        return Gap(int(9 * MS * longer), 20, op_ns=int(200_000 * longer * draw.uniform(0.9, 1.1)))

    return [gap(by) for _ in range(60) for by in [draw.choice((1, 1, 1, 1.5))] * 100]


def slower_or_held_up(draw: random.Random) -> list[Gap]:
    """What takes longer at times is now its ops, now what else is in a gap, by chance."""

    def gap() -> Gap:
        ops, others = draw.lognormvariate(0, 0.2), draw.lognormvariate(0, 0.2)
        return Gap(int(6 * MS * (ops + others)), 20, op_ns=int(300_000 * ops))

    return [gap() for _ in range(3000)]


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


def held_up_at_first(draw: random.Random) -> list[Gap]:
    """A few steps of a short run: the first of a kind loads kernels, others meet a busy machine.

    They have their ops at the end, all at once.
    """

    def step(i: int) -> Gap:
        if i % 150 != 20:
            return Gap(MS, 48)
        waited = int(draw.uniform(15, 60) * MS)
        return Gap(waited + MS, 48, begin=(waited, 0))

    return [step(i) for i in range(600)]


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
        slower_at_times,
        slower_or_held_up,
        evaluations_among_steps_held_up,
        long_evaluations,
        evaluations_that_differ,
        evaluations_after_steps,
        rare_evaluations,
        waits,
        held_up_at_first,
        eager_half,
        uneven_eager_half,
        eager_between,
        nothing_in_the_last_gap,
        gaps_that_snapshots_cut,
    )
}
