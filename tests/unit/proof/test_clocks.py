"""The clocks round the graphs of programs."""

from collections.abc import Callable

import pytest
from truth_programs import clocks
from truth_programs.clocks import GraphClock, HostClock, StreamClock
from truth_programs.looking import TURN_S, Turns
from truth_programs.run import FIRST


class Graph:
    """As the class whose graphs are watched: what is called in a graph's place takes a second."""

    def __init__(self, seconds: list[float]) -> None:
        self.seconds = seconds

    def _observed(self, compiled: Callable[[], None], backward: bool) -> Callable[[], None]:
        def call() -> None:
            self.seconds[0] += 1
            compiled()

        return call


def test_one_clock_is_inside_of_what_is_ours_and_one_round_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(clocks.time, "perf_counter", lambda: now[0])
    clock = HostClock()
    monkeypatch.setattr(Graph, "_observed", Graph._observed)
    clock.watch(Graph)

    def compiled() -> None:
        now[0] += 5

    Graph(now)._observed(compiled, False)()
    assert (clock.total_s, clock.main_s, clock.own_s) == (5, 5, 1)


def test_on_ranks_the_host_has_a_clock_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Round the events inside of what is ours: with them, as our own figure of it."""
    now = [0.0]
    monkeypatch.setattr(clocks.time, "perf_counter", lambda: now[0])

    def recorded() -> None:
        now[0] += 2

    monkeypatch.setattr(clocks, "_recorded", recorded)
    monkeypatch.setattr(Graph, "_observed", Graph._observed)
    clock = StreamClock()
    clock.watch(Graph)

    def compiled() -> None:
        now[0] += 5

    Graph(now)._observed(compiled, False)()
    assert clock.main_s == 9


def test_calls_at_once_are_one_stretch_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(clocks.time, "perf_counter", lambda: now[0])
    watch = clocks._Stopwatch()
    for moment, turn in ((1, watch.start), (2, watch.start), (4, watch.stop), (7, watch.stop)):
        now[0] = moment
        turn()
    assert watch.total_s == 6


def test_which_parts_call_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others, such as a single op after many steps, tell nothing of how far a host is ahead."""
    now = [0.0]
    monkeypatch.setattr(clocks.time, "perf_counter", lambda: now[0])
    clock = GraphClock()

    def compiled() -> None:
        now[0] += 5

    timed = clock.timed(compiled)
    with clock.watch("step", 0):
        timed()
    with clock.watch("step", FIRST):
        timed()
    with clock.watch("roll", FIRST):
        now[0] += 1
    assert (clock.parts, clock.first_s, clock.total_s) == ({"step"}, 5, 10)


def test_seeing_ops_is_held_against_all_that_a_part_takes() -> None:
    """A time takes 2 ms and the program's clocks 3; where each op is seen, 4 and 3: it is 7 / 5.

    What is between two with another part between them is that one's.
    """
    now = [0.0]
    seen = [False]
    turns = Turns("eager", lambda looks: seen.__setitem__(0, looks), lambda: now[0])
    number = FIRST
    for _ in range(8):  # turns, which begin after a step
        for _ in range(5):
            with turns.watch("eager", number):
                now[0] += 0.004 if seen[0] else 0.002
            now[0] += 0.003
            number += 1
        with turns.watch("step", number):
            now[0] += 100 * TURN_S
    assert turns.slower() == pytest.approx(7 / 5)
