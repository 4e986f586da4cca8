"""The course of a trial: what runs next, until all is settled or the budget is spent.

First the program as it is, with cold caches: it tells what a step is, how many are measured, and,
by its report, what each change can win at most. Then each change once, with cold caches of its own,
which tells what it takes to compile, and warms them. Then rounds: the program as it is and each
change that is not settled yet, once forward, once backward, so that what drifts hits both.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from instrumented_backend.records.trials import Bound, Trial, TrialRun
from instrumented_backend.trials import compare
from instrumented_backend.trials.bounds import bounds
from instrumented_backend.trials.changes import (
    COMPILED_OPTIMIZER,
    FUSED_OPTIMIZER,
    WARM_CACHES,
    Change,
)
from instrumented_backend.trials.plan import Plan
from instrumented_backend.trials.runs import Outcome

FAILED, NOT_APPLICABLE, NOT_TRIED = "failed", "not applicable", "not tried"
AS_IT_IS = "as it is"
_OPTIMIZERS = (COMPILED_OPTIMIZER, FUSED_OPTIMIZER)

Run = Callable[[Plan, str], Outcome]  # the plan, and the name of a folder for caches
Progress = Callable[[str], None]


class BaselineError(Exception):
    """The program as it is does not run; one line."""


@dataclass
class _Tried:
    change: Change
    bound: Bound | None
    cold: Outcome | None = None
    outcome: str | None = None  # why it is not measured, or no more
    reason: str | None = None
    pairs: list[tuple[float, float]] = field(default_factory=list)
    warm: list[Outcome] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        """Is there more to measure?"""
        if self.outcome is not None or self.cold is None:
            return False
        pairs = len(self.pairs)
        if pairs not in compare.LOOKS:
            return pairs < compare.MAX_PAIRS
        settled = compare.verdict(compare.speed_up(self.pairs)) != compare.UNCLEAR
        return not settled and pairs < compare.MAX_PAIRS

    def give_up(self, outcome: str, reason: str) -> None:
        self.outcome, self.reason = outcome, reason


class Course:
    """`run` goes through it; `result` is what is known so far, at any time."""

    def __init__(
        self,
        run: Run,
        changes: Sequence[Change],
        *,
        budget_s: float,
        steps: int | None,
        clock: Callable[[], float],
        progress: Progress,
    ) -> None:
        self._run_one = run
        self._changes = changes
        self._budget_s = budget_s
        self._steps = steps
        self._clock = clock
        self._progress = progress
        self._began = clock()
        self._runs = 0
        self._base: Outcome | None = None  # with cold caches
        self._again: Outcome | None = None  # with warm caches, observed as that one
        self._warm: list[Outcome] = []
        self._tried: list[_Tried] = []
        self._notes: list[str] = []

    # --- Running ---------------------------------------------------------------------------------

    def run(self) -> None:
        """Raises `BaselineError` where there is nothing to compare with."""
        self._base = base = self._one(None, cold=True)
        if base.error is not None:
            raise BaselineError(base.error)
        told = bounds(base.whole, base.measured)
        self._tried = [_Tried(change, told.get(change.name)) for change in self._changes]
        # What promises most comes first: the budget may not be enough for all.
        self._tried.sort(key=lambda one: -((one.bound and one.bound.bound_pct) or 0.0))
        for tried in self._tried:
            if self._is_spent():
                break
            self._compile(tried)
        while any(tried.is_open for tried in self._tried) and not self._is_spent():
            if not self._round():
                break

    def _compile(self, tried: _Tried) -> None:
        """The first run of a change."""
        change = tried.change
        if change.name == WARM_CACHES:
            self._again = self._one(None, observe=True)
            return
        assert self._base is not None and self._base.ran is not None
        if change.needs_cuda and not self._base.ran.uses_cuda:
            tried.give_up(NOT_APPLICABLE, "it needs a GPU")
            return
        outcome = self._one(change, cold=True)
        if outcome.error is not None or outcome.ran is None:
            tried.give_up(FAILED, outcome.error or "")
            return
        tried.cold = outcome
        if not outcome.ran.applied:
            what = "optimizer that it could change" if change.name in _OPTIMIZERS else None
            tried.give_up(NOT_APPLICABLE, f"no {what or 'torch.compile of Inductor'} in it")

    def _round(self) -> bool:
        """One more pair for each that is open; False where the program as it is has failed."""
        sides = [None, *(tried for tried in self._tried if tried.is_open)]
        if len(self._warm) % 2:
            sides.reverse()
        outcomes: list[tuple[_Tried, Outcome]] = []
        base = None
        for tried in sides:
            if self._is_spent():
                break
            if tried is not None:
                outcomes.append((tried, self._one(tried.change)))
                continue
            base = self._one(None)
            if base.error is not None:
                self._notes.append(f"a run of the program as it is has failed: {base.error}")
                return False
            self._warm.append(base)
        for tried, outcome in outcomes:
            if outcome.error is not None:
                tried.give_up(FAILED, outcome.error)
            elif base is not None:
                tried.warm.append(outcome)
                tried.pairs.append((self._seconds(base), self._seconds(outcome)))
        return base is not None

    def _one(self, change: Change | None, cold: bool = False, observe: bool = False) -> Outcome:
        name = AS_IT_IS if change is None else change.name
        which = "compiling" if cold else f"run {len(self._warm) + 1}"
        self._progress(f"{name}, {which}")
        self._runs += 1
        plan = Plan(None if change is None else change.name, observe=cold or observe)
        found = None if self._base is None else self._base.ran
        if found is None:
            plan.steps = self._steps
        elif found.unit is not None:
            plan.unit, plan.warmup, plan.steps = found.unit, found.warmup, found.steps
        # Inductor's calls of the compiler take no folder with a space in it.
        outcome = self._run_one(plan, name.replace(" ", "-"))
        ran = outcome.ran
        if plan.unit is not None and ran is not None and ran.steps != plan.steps:
            text = f"it made {ran.steps} of {plan.steps} steps ({plan.unit})"
            return Outcome(None, text, outcome.stdout, outcome.wall_s)
        return outcome

    def _is_spent(self) -> bool:
        return self._clock() - self._began >= self._budget_s

    def _seconds(self, outcome: Outcome) -> float:
        """Of a step; of the run where the program has too few."""
        ran = outcome.ran
        if ran is None or ran.unit is None:
            return outcome.wall_s
        return ran.seconds / ran.steps

    # --- What is known ---------------------------------------------------------------------------

    def result(self, command: str, interrupted: bool = False) -> TrialRun:
        ran = None if self._base is None else self._base.ran
        known = TrialRun(command, interrupted=interrupted, runs=self._runs, notes=[*self._notes])
        known.took_s = self._clock() - self._began
        if ran is None:
            return known
        if ran.unit is not None:
            known.unit, known.warmup, known.steps = ran.unit, ran.warmup, ran.steps
        known.device = "cuda" if ran.uses_cuda else "cpu"
        known.compile_s = ran.compile_s
        known.peak_memory_bytes = _memory(self._warm)
        if self._warm:
            known.step_s = statistics.median(map(self._seconds, self._warm))
        if ran.unit is None:
            known.notes.append("too few steps were found: the time of whole runs is compared")
        if any(one.ran and one.ran.compiled_in_steps for one in self._warm):
            known.notes.append("the program compiles in the measured steps, too")
        why = "interrupted" if interrupted else "the budget was spent"
        known.trials = sorted((self._trial(tried, why) for tried in self._tried), key=_rank)
        return known

    def _trial(self, tried: _Tried, why_not: str) -> Trial:
        change = tried.change
        trial = Trial(change.name, change.line, NOT_TRIED, bound=tried.bound)
        if change.name == WARM_CACHES:
            self._of_caches(trial, why_not)
            return trial
        cold = tried.cold.ran if tried.cold is not None else None
        trial.compile_s = None if cold is None else cold.compile_s
        trial.notes = [] if cold is None else [*cold.notes]
        trial.speed_up = compare.speed_up(tried.pairs)
        if tried.outcome is not None:
            trial.verdict, trial.reason = tried.outcome, tried.reason
            return trial
        if not tried.pairs:
            trial.reason = why_not
            return trial
        trial.verdict = compare.verdict(trial.speed_up)
        before, after = (statistics.fmean(side) for side in zip(*tried.pairs, strict=True))
        trial.step_s, trial.gain_s = after, before - after
        trial.gain_pct = 100 * (before - after) / before
        if trial.verdict == compare.HELPS:
            assert self._base is not None and self._base.ran is not None
            base_s = self._base.ran.compile_s
            trial.paid_back_after_steps = compare.paid_back_after(
                trial.compile_s, base_s, trial.gain_s
            )
        trial.peak_memory_bytes = _memory(tried.warm)
        trial.prints = compare.agreement(
            [outcome.stdout for outcome in self._warm], tried.warm[0].stdout
        )
        return trial

    def _of_caches(self, trial: Trial, why_not: str) -> None:
        """What they win is won at the start, once a run, and is seen once."""
        if self._again is None:
            trial.reason = why_not
            return
        if self._again.error is not None or self._base is None:
            trial.verdict, trial.reason = FAILED, self._again.error
            return
        cold, warm = self._base.ran, self._again.ran
        if cold is None or warm is None or cold.compile_s is None or warm.compile_s is None:
            trial.verdict, trial.reason = NOT_APPLICABLE, "no torch.compile of Inductor in it"
            return
        trial.compile_s, trial.gain_s = warm.compile_s, cold.compile_s - warm.compile_s
        trial.verdict = "at the start"


def _memory(outcomes: Sequence[Outcome]) -> int | None:
    """The highest peak of the runs: of the GPU where one is used."""
    peaks = [
        ran.peak_cuda_bytes if ran.uses_cuda else ran.peak_rss_bytes
        for ran in (outcome.ran for outcome in outcomes)
        if ran is not None
    ]
    return max((peak for peak in peaks if peak is not None), default=None)


_ORDER = (compare.HELPS, compare.UNCLEAR, compare.SAME, compare.HURTS, "at the start")


def _rank(trial: Trial) -> tuple[int, float]:
    place = _ORDER.index(trial.verdict) if trial.verdict in _ORDER else len(_ORDER)
    return place, -(trial.speed_up.ratio if trial.speed_up else 0.0)
