"""What runs next, and what comes of it: programs of which the test says how long they take."""

from collections.abc import Callable, Sequence

import pytest

from instrumented_backend.records.trials import Agreement, Trial, TrialRun
from instrumented_backend.trials.changes import BY_NAME
from instrumented_backend.trials.course import BaselineError, Course
from instrumented_backend.trials.plan import Plan, Ran
from instrumented_backend.trials.runs import Outcome

UNIT = "step of AdamW"


class Machine:
    """Runs take ten seconds each. ``step_s`` is what a step takes by the change's name."""

    def __init__(self, step_s: dict[str | None, float], **more: object) -> None:
        self.step_s = step_s
        self.more = more
        self.now = 0.0
        self.plans: list[Plan] = []
        self.failing: dict[str | None, str] = {}
        self.after = 0  # runs, before what is failing does
        self.compile_s: dict[str | None, float] = {}
        self.prints: dict[str | None, str] = {}
        self.noise: Callable[[int], float] = lambda number: 1.0
        self.steps = 50

    def run(self, plan: Plan, caches: str) -> Outcome:
        self.plans.append(plan)
        self.now += 10.0
        change = plan.change
        printed = self.prints.get(change, "loss 0.5\n")
        if change in self.failing and len(self.plans) > self.after:
            return Outcome(None, self.failing[change], printed, 10.0)
        seconds = self.step_s[change] * self.steps * self.noise(len(self.plans))
        ran = Ran(1, 0, 99, UNIT, 5, self.steps, seconds, applied=1)
        ran.peak_rss_bytes = 1000
        ran.compile_s = self.compile_s.get(change) if plan.observe else None
        for name, value in self.more.items():
            setattr(ran, name, value)
        return Outcome(ran, None, printed, 10.0)

    def course(self, changes: Sequence[str], budget_s: float = 1e6) -> Course:
        return Course(
            self.run,
            [BY_NAME[name] for name in changes],
            budget_s=budget_s,
            steps=None,
            clock=lambda: self.now,
            progress=lambda text: None,
        )

    def result(self, *changes: str, budget_s: float = 1e6) -> TrialRun:
        course = self.course(changes, budget_s)
        course.run()
        return course.result("train.py")

    @property
    def ran(self) -> list[str | None]:
        return [plan.change for plan in self.plans]


def only(result: TrialRun) -> Trial:
    (trial,) = result.trials
    return trial


def test_a_change_that_helps() -> None:
    machine = Machine({None: 0.3, "dynamic": 0.2})
    machine.compile_s = {None: 10.0, "dynamic": 14.95}
    result = machine.result("dynamic")
    # As it is and changed, cold; then three pairs, once forward, once backward.
    assert machine.ran == [None, "dynamic", None, "dynamic", "dynamic", None, None, "dynamic"]
    trial = only(result)
    assert trial.verdict == "helps"
    assert trial.speed_up is not None and trial.speed_up.ratio == pytest.approx(1.5)
    assert trial.gain_s == pytest.approx(0.1) and trial.gain_pct == pytest.approx(100 / 3)
    assert trial.paid_back_after_steps == 50  # 4.95 s at 0.1 s a step: 49.5
    assert trial.prints == Agreement("same")
    assert (trial.peak_memory_bytes, result.peak_memory_bytes) == (1000, 1000)
    assert (result.unit, result.steps, result.warmup, result.runs) == (UNIT, 50, 5, 8)
    assert result.step_s == pytest.approx(0.3)


def test_each_run_measures_what_the_first_one_found() -> None:
    machine = Machine({None: 0.3, "dynamic": 0.2})
    machine.result("dynamic")
    first, *others = machine.plans
    assert (first.unit, first.warmup, first.steps) == (None, None, None)
    assert {(plan.unit, plan.warmup, plan.steps) for plan in others} == {(UNIT, 5, 50)}
    # Only the cold runs are observed: what is timed is plain Inductor.
    assert [plan.observe for plan in machine.plans] == [True, True] + [False] * 6


def test_changes_that_are_settled_run_no_more() -> None:
    machine = Machine({None: 1.0, "dynamic": 0.5, "matmul-high": 1.0, "eager": 2.0})
    result = machine.result("dynamic", "matmul-high", "eager")
    verdicts = {trial.change: trial.verdict for trial in result.trials}
    assert verdicts == {"dynamic": "helps", "matmul-high": "no difference", "eager": "hurts"}
    assert [trial.change for trial in result.trials] == ["dynamic", "matmul-high", "eager"]
    assert machine.ran.count("eager") == 4


def test_what_is_never_clear_ends() -> None:
    machine = Machine({None: 1.0, "dynamic": 1.0})
    machine.noise = lambda number: 1.0 + 0.3 * (number % 3)
    result = machine.result("dynamic")
    assert only(result).verdict == "unclear"
    assert only(result).speed_up.pairs == 20  # type: ignore[union-attr]


def test_the_budget() -> None:
    """65 s: seven runs begin. The third pair is the fourth run of the program as it is, and none
    of the change's any more."""
    machine = Machine({None: 1.0, "dynamic": 0.5})
    result = machine.result("dynamic", budget_s=65)
    assert len(machine.plans) == 7
    trial = only(result)
    assert trial.speed_up is not None and trial.speed_up.pairs == 2
    assert trial.verdict == "unclear"


def test_a_budget_that_is_too_small() -> None:
    result = Machine({None: 1.0, "dynamic": 0.5}).result("dynamic", budget_s=5)
    assert (only(result).verdict, only(result).reason) == ("not tried", "the budget was spent")


def test_a_program_that_fails_as_it_is() -> None:
    machine = Machine({None: 1.0})
    machine.failing[None] = "EOFError: EOF when reading a line"
    with pytest.raises(BaselineError, match=r"^EOFError: EOF when reading a line$"):
        machine.result("dynamic")
    assert len(machine.plans) == 1


def test_a_change_that_fails_harms_no_other() -> None:
    machine = Machine({None: 1.0, "dynamic": 0.5, "eager": 2.0})
    machine.failing["dynamic"] = "killed after 300 s, the time limit of a run"
    result = machine.result("dynamic", "eager")
    failed = result.trials[-1]
    assert (failed.change, failed.verdict) == ("dynamic", "failed")
    assert failed.reason == "killed after 300 s, the time limit of a run"
    assert result.trials[0].verdict == "hurts"
    assert machine.ran.count("dynamic") == 1


def test_a_change_that_fails_later() -> None:
    machine = Machine({None: 1.0, "dynamic": 0.5})
    machine.failing["dynamic"], machine.after = "RuntimeError: later", 4
    trial = only(machine.result("dynamic"))
    assert (trial.verdict, trial.reason) == ("failed", "RuntimeError: later")


def test_the_program_as_it_is_fails_later() -> None:
    machine = Machine({None: 1.0, "dynamic": 0.5})
    machine.failing[None], machine.after = "OSError: disk full", 4
    result = machine.result("dynamic")
    assert result.notes == ["a run of the program as it is has failed: OSError: disk full"]
    assert only(result).speed_up.pairs == 1  # type: ignore[union-attr]


def test_a_change_that_is_made_nowhere() -> None:
    machine = Machine({None: 1.0, "dynamic": 1.0, "fused-optimizer": 1.0}, applied=0)
    result = machine.result("dynamic", "fused-optimizer", "reduce-overhead")
    assert {trial.change: trial.reason for trial in result.trials} == {
        "dynamic": "no torch.compile of Inductor in it",
        "fused-optimizer": "no optimizer that it could change in it",
        "reduce-overhead": "it needs a GPU",
    }
    assert {trial.verdict for trial in result.trials} == {"not applicable"}
    assert "reduce-overhead" not in machine.ran


def test_a_program_without_steps_is_compared_as_a_whole() -> None:
    machine = Machine({None: 1.0, "dynamic": 1.0}, unit=None)
    result = machine.result("dynamic")
    assert (result.unit, result.steps, result.step_s) == ("run", 0, 10.0)
    assert only(result).verdict == "no difference"
    assert result.notes == ["too few steps were found: the time of whole runs is compared"]


def test_a_change_that_loses_steps_is_not_compared() -> None:
    machine = Machine({None: 1.0, "dynamic": 0.5})
    course = machine.course(["dynamic"])
    machine.more["steps"] = 50

    def run(plan: Plan, caches: str) -> Outcome:
        if plan.change is not None:
            machine.more["steps"] = 3
        return machine.run(plan, caches)

    course._run_one = run
    course.run()
    trial = only(course.result("train.py"))
    assert (trial.verdict, trial.reason) == ("failed", f"it made 3 of 50 steps ({UNIT})")


def test_warm_caches_are_told_by_two_runs() -> None:
    machine = Machine({None: 1.0})
    seconds = iter([30.0, 12.0])

    def run(plan: Plan, caches: str) -> Outcome:
        machine.compile_s[None] = next(seconds)
        return machine.run(plan, caches)

    course = machine.course(["warm-caches"])
    course._run_one = run
    course.run()
    trial = only(course.result("train.py"))
    assert (trial.verdict, trial.gain_s, trial.compile_s) == ("at the start", 18.0, 12.0)
    assert len(machine.plans) == 2


def test_what_is_known_when_it_is_interrupted() -> None:
    machine = Machine({None: 1.0, "dynamic": 0.5})

    def run(plan: Plan, caches: str) -> Outcome:
        if len(machine.plans) == 4:
            raise KeyboardInterrupt
        return machine.run(plan, caches)

    course = machine.course(["dynamic"])
    course._run_one = run
    with pytest.raises(KeyboardInterrupt):
        course.run()
    result = course.result("train.py", interrupted=True)
    assert result.interrupted
    assert only(result).speed_up.pairs == 1  # type: ignore[union-attr]
    assert course.result("train.py").took_s == 40.0


def test_interrupted_before_anything_is_known() -> None:
    result = Machine({None: 1.0}).course(["dynamic"]).result("train.py", interrupted=True)
    assert result.trials == [] and result.step_s is None
