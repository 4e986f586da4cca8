"""When windows open, by a clock and a chance that the tests hold."""

import math
import random

import pytest

from instrumented_backend.observe.windows import Plan, WindowSchedule

BUDGET = 0.004


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def schedule(clock: Clock, chance: float = 0.5, shortest_s: float = 0.0) -> WindowSchedule:
    return WindowSchedule(1.0, 2.0, 8.0, BUDGET, shortest_s, clock, lambda: chance)


def test_without_a_budget_windows_open_at_the_ends_of_intervals() -> None:
    plans = WindowSchedule(1.0, 2.0, 5.0)
    assert [plans.next() for _ in range(4)] == [Plan(wait, 0.0) for wait in (1, 2, 4, 5)]
    plans.restart()
    assert plans.next() == Plan(1.0, 0.0)


def test_the_programs_random_numbers_stay_its_own() -> None:
    state = random.getstate()
    plans = WindowSchedule(1.0, 2.0, 5.0, BUDGET)
    assert plans.next() != plans.next()
    assert random.getstate() == state


def test_nothing_spent_yet() -> None:
    # Half of the interval of 1 s, and chance has it open in the middle.
    assert schedule(Clock()).next() == Plan(0.5, 0.5)


def test_coverage_is_the_budget_by_what_windows_cost() -> None:
    clock = Clock()
    plans = schedule(clock)
    clock.now += 100.0
    # 0.4 s of windows cost 16 ms, 4 % of the time that they were open. A budget of 0.4 % is a
    # tenth of that: 0.1 of the interval of 1 s.
    plan = plans.next(spent_s=0.016, cost_s=0.016, open_s=0.4)
    assert (plan.wait_s, plan.length_s) == (pytest.approx(0.5), pytest.approx(0.1))
    # The next interval is twice as long.
    plan = plans.next(spent_s=0.016, cost_s=0.016, open_s=0.4)
    assert (plan.wait_s, plan.length_s) == (pytest.approx(1.0), pytest.approx(0.2))


def test_windows_that_cost_next_to_nothing_are_half_of_the_time() -> None:
    clock = Clock()
    plans = schedule(clock)
    clock.now += 100.0
    assert plans.next(spent_s=1e-6, cost_s=1e-6, open_s=1.0).length_s == 0.5


def test_a_window_stands_for_half_of_the_time_to_its_neighbours() -> None:
    """Wherever in their intervals chance has put them."""
    clock, draw = Clock(), random.Random(0)
    plans = WindowSchedule(1.0, 1.0, 8.0, BUDGET, clock=clock, chance=draw.random)
    clock.now += 100.0
    plans.go_on()
    spent_s, stood_for_s = 0.4, []  # all that was affordable: each window is made up for
    for cost_s in (0.008, 0.04, 0.02, 0.0):
        plan = plans.next(spent_s, 1.0, 25.0)
        stood_for_s.append(plan.last_stood_for_s)
        clock.now += plan.wait_s + plan.length_s
        spent_s += cost_s
    # From the beginning to the first it is half of an interval of 1 s; from there on, 4 ms of cost
    # are 1 s of the budget of 0.4 %.
    assert stood_for_s == pytest.approx([0.0, (0.5 + 2) / 2, (2 + 10) / 2, (10 + 5) / 2])
    plans.go_on()
    assert plans.next(spent_s, 1.0, 25.0).last_stood_for_s == 0.0


@pytest.mark.parametrize(("chance", "wait_s"), [(0.0, 0.0), (0.25, 0.25), (1.0, 1.0)])
def test_windows_are_anywhere_in_their_interval(chance: float, wait_s: float) -> None:
    clock = Clock()
    plans = schedule(clock, chance)
    clock.now += 100.0
    plan = plans.next(spent_s=0.016, cost_s=0.016, open_s=0.4)
    assert plan.wait_s == pytest.approx(wait_s)


def test_a_short_window_makes_its_interval_longer() -> None:
    clock = Clock()
    plans = schedule(clock, shortest_s=0.2)
    clock.now += 100.0
    # A tenth of 1 s is less than 0.2 s, which is a tenth of 2 s: anywhere in these.
    plan = plans.next(spent_s=0.016, cost_s=0.016, open_s=0.4)
    assert (plan.wait_s, plan.length_s) == (pytest.approx(1.0), 0.2)


def test_what_was_spent_too_much_delays() -> None:
    clock = Clock()
    plans = schedule(clock)
    clock.now += 3.0
    # 16 ms are 0.4 % of 4 s, and 3 s have passed: 1 s more than otherwise.
    assert plans.affordable_s() == pytest.approx(0.012)
    assert plans.next(spent_s=0.016, cost_s=0.016, open_s=0.4).wait_s == pytest.approx(0.5 + 1.0)


def test_a_window_is_as_long_as_others_have_cost_lately() -> None:
    """Ops come forty times denser than before."""
    clock, cost_s, open_s = Clock(), 0.0, 0.0
    plans = WindowSchedule(1.0, 1.0, 1.0, BUDGET, clock=clock)
    for each in [0.01] * 40 + [0.4] * 40:
        length_s = plans.next(0.0, cost_s, open_s).length_s
        cost_s, open_s = cost_s + each * length_s, open_s + length_s
        clock.now += 1.0
    assert length_s == pytest.approx(BUDGET / 0.4, rel=0.1)
    assert length_s < 0.5 * BUDGET * open_s / cost_s


def test_restart() -> None:
    clock = Clock()
    plans = schedule(clock)
    plans.next()
    clock.now += 5.0
    assert plans.elapsed_s() == 5.0
    plans.restart()
    assert plans.elapsed_s() == plans.affordable_s() == 0.0
    assert plans.next() == Plan(0.5, 0.5)


def test_the_share_of_a_long_run_is_kept() -> None:
    """Windows that cost 4 % of the time that they are open: 10 % of it, all over the run."""
    clock, draw = Clock(), random.Random(0)
    plans = WindowSchedule(0.25, 1.02, 5.0, BUDGET, 0.002, clock, draw.random)
    open_s, places = 0.0, []
    while clock.now < 100.0 + 1000.0:
        plan = plans.next(0.04 * open_s, 0.04 * open_s, open_s)
        clock.now += plan.wait_s
        places.append(clock.now - 100.0)
        clock.now += plan.length_s
        open_s += plan.length_s
        # The next interval begins where this one, or its window, ends.
    assert 0.04 * open_s <= plans.affordable_s() * 1.05
    for quarter in range(4):
        assert any(250 * quarter <= place < 250 * (quarter + 1) for place in places)


def test_all_that_a_program_does_is_as_likely_to_be_seen() -> None:
    """Where intervals meet, too: in 4,000 runs, windows of a tenth of each interval."""
    runs, places, apart_s = 4_000, 100, 0.04
    seen = [0] * places
    for run in range(runs):
        clock = Clock()
        draw = random.Random(run)
        plans = WindowSchedule(0.25, 1.02, 5.0, BUDGET, clock=clock, chance=draw.random)
        end_s, open_s = clock.now + apart_s * places, 0.0
        while clock.now < end_s:
            plan = plans.next(0.04 * open_s, 0.04, 1.0)
            opens_s = clock.now - 100.0 + plan.wait_s
            first, last = math.ceil(opens_s / apart_s), (opens_s + plan.length_s) / apart_s
            for place in range(first, min(places, math.ceil(last))):
                seen[place] += 1
            clock.now += plan.wait_s + plan.length_s
            open_s += plan.length_s
    # The first window only just begins. A share of 0.1 in 4,000 runs is uncertain by 0.005.
    shares = [count / runs for count in seen[1:]]
    assert all(abs(share - 0.1) < 0.02 for share in shares)
