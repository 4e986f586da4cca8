"""When windows open: those of the op meter, and those of device time."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

LATELY = 0.85  # how much each window counts against the one after it
_OWN = random.Random()  # the module's own numbers are the program's, which may have a seed


@dataclass(frozen=True)
class Plan:
    """The next window: when it opens, from now, and how long it is to last, in seconds.

    And for how much of the run stands what the one before it saw: 0 where nobody knows.
    """

    wait_s: float
    length_s: float
    last_stood_for_s: float = 0.0


class _Lately:
    """What a total has grown by from window to window, the last ones above all."""

    def __init__(self) -> None:
        self._total = self._lately = 0.0

    def of(self, total: float) -> float:
        self._lately = LATELY * self._lately + total - self._total
        self._total = total
        return self._lately


class WindowSchedule:
    """One window in each interval. Intervals grow, and with them the windows.

    With a ``budget``, a share of the run's time, windows last as long as that allows, by what they
    have cost lately, and chance has each open anywhere in its interval, also where it then ends in
    the next one: all that the program does is as likely to be seen. But where windows cost more,
    they are shorter and farther apart: each stands for half of the time to its neighbours, wherever
    in their intervals chance has put them. Without a budget they open at the intervals' ends.
    """

    def __init__(
        self,
        first_s: float,
        growth: float,
        longest_s: float,
        budget: float | None = None,
        shortest_window_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = _OWN.random,
    ) -> None:
        """``clock`` in seconds; ``chance`` draws from 0 to 1."""
        self.clock = clock
        self._first_s, self._growth, self._longest_s = first_s, growth, longest_s
        self._budget, self._shortest_s = budget, shortest_window_s
        self._chance = chance
        self.restart()

    def restart(self) -> None:
        """Begin with the first interval again, now."""
        self._interval_s = self._first_s
        self._cost_s, self._open_s = _Lately(), _Lately()
        self.started_s = self.clock()
        self.go_on()

    def go_on(self) -> None:
        """Other windows have seen what came after the last one of this schedule."""
        self._middles_s = [self.elapsed_s()]

    def elapsed_s(self) -> float:
        return self.clock() - self.started_s

    def affordable_s(self) -> float:
        """What windows may have cost by now."""
        return (self._budget or 0.0) * self.elapsed_s()

    def next(self, spent_s: float = 0.0, cost_s: float = 0.0, open_s: float = 0.0) -> Plan:
        """``spent_s`` is spent of the budget; ``open_s`` of being open have cost ``cost_s``."""
        interval_s = self._interval_s
        self._interval_s = min(interval_s * self._growth, self._longest_s)
        if self._budget is None:
            return Plan(interval_s, 0.0)
        lately_cost_s, lately_open_s = self._cost_s.of(cost_s), self._open_s.of(open_s)
        share = 0.5
        if lately_cost_s > 0:
            share = min(share, self._budget * lately_open_s / lately_cost_s)
        length_s = share * interval_s
        if length_s < self._shortest_s:
            length_s = self._shortest_s
            interval_s = length_s / share
        # What earlier windows have cost beyond their share is made up for.
        made_up_s = max(0.0, spent_s / self._budget - self.elapsed_s())
        middle_s = self.elapsed_s() + made_up_s + interval_s / 2
        # The last one stands for half of the time to each of its neighbours.
        before_s = self._middles_s[-2:]
        last_s = max(length_s, (middle_s - before_s[0]) / 2) if len(before_s) == 2 else 0.0
        self._middles_s = [before_s[-1], middle_s]
        return Plan(made_up_s + self._chance() * interval_s, length_s, last_s)
