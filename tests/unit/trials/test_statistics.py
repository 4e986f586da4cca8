"""Trials of programs of which the truth is known: how often their intervals have it, and agree."""

import math
import random
from itertools import pairwise

import pytest

from instrumented_backend.records.trials import SpeedUp
from instrumented_backend.trials import compare
from instrumented_backend.trials.changes import BY_NAME
from instrumented_backend.trials.course import Course
from instrumented_backend.trials.plan import Plan, Ran
from instrumented_backend.trials.runs import Outcome

RUNS, LEAST = 120, 106  # 114 of them are due to have the truth


def trial(chance: random.Random, true: float, noise: float, slow: bool, budget_s: float) -> SpeedUp:
    """Runs of a second. A run's time has a spread of ``noise``; where it is ``slow``, a run in
    twenty takes much longer, as beside another program. The machine itself drifts."""
    now = 0.0

    def run(plan: Plan, caches: str) -> Outcome:
        nonlocal now
        now += 1.0
        late = abs(chance.gauss(0, 5 * noise)) if slow and chance.random() < 0.05 else 0.0
        drift = 1 + 0.3 * math.sin(now / 40)
        factor = drift * math.exp(chance.gauss(0, noise) + late)
        seconds = factor * (1.0 if plan.change else true)
        return Outcome(Ran(1, 0, 99, "step", 5, 1, seconds, applied=1), None, "", 1.0)

    changes = [BY_NAME["dynamic"]]
    course = Course(
        *(run, changes),
        budget_s=budget_s,
        steps=None,
        clock=lambda: now,
        progress=lambda text: None,
    )
    course.run()
    found = course.result("").trials[0].speed_up
    assert found is not None and found.low is not None and found.high is not None
    return found


@pytest.mark.parametrize("slow", [False, True])
@pytest.mark.parametrize("noise", [0.003, 0.01, 0.08])
@pytest.mark.parametrize("true", [0.9, 1.0, 1.02, 1.5])
def test_intervals_have_the_truth_and_agree(true: float, noise: float, slow: bool) -> None:
    """Though a trial ends as soon as it is clear, which is when chance may have made it clear."""
    chance = random.Random(f"{true} {noise} {slow}")
    found = [trial(chance, true, noise, slow, budget_s=1e6) for _ in range(RUNS)]
    has_it = sum(one.low <= true <= one.high for one in found)  # type: ignore[operator]
    assert has_it >= LEAST
    agree = [
        one.low <= other.high and other.low <= one.high  # type: ignore[operator]
        for one, other in pairwise(found)
    ]
    assert sum(agree) >= 0.95 * len(agree)
    if true == 1.0:
        verdicts = [compare.verdict(one) for one in found]
        assert verdicts.count(compare.HELPS) + verdicts.count(compare.HURTS) <= 0.05 * RUNS


def test_a_budget_that_ends_between_two_looks() -> None:
    chance = random.Random(1)
    found = [trial(chance, 1.0, 0.08, True, budget_s=2 + 2 * (4 + i % 14)) for i in range(RUNS)]
    assert {one.pairs for one in found} - set(compare.LOOKS)
    assert sum(one.low <= 1.0 <= one.high for one in found) >= LEAST  # type: ignore[operator]
