"""A program's steps, found from its own calls: which are its warm-up, which are measured.

A step ends with an optimizer's step. In a program without one, it ends with a call of the function
that was compiled and is called most often.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from instrumented_backend.trials.plan import Plan

MIN_WARMUP = 5  # CUDA graphs are recorded in the third call
QUIET = 3  # steps without a compilation, at the end of the warm-up
MAX_WARMUP = 50  # a program that compiles in each step is measured so
MIN_STEPS = 5
MAX_STEPS = 2000
PATIENCE = 10  # times as many calls, for an optimizer that has been made and has not stepped
_STEP, _CALL = "step of ", "call of "


@dataclass
class Unit:
    """What may be the program's step; ``seconds`` is the time of those after the warm-up."""

    name: str
    marks: int = 0
    count: int = 0  # of them, those up to the last step that is measured
    quiet: int = 0
    warmup: int | None = None
    began: float = 0.0
    seconds: float = 0.0
    compilations: int = 0  # by the last look
    compiled_in_steps: int = 0
    waited: int = 0  # marks after enough steps had been measured

    @property
    def steps(self) -> int:
        return 0 if self.warmup is None else self.count - self.warmup

    @property
    def is_of_optimizer(self) -> bool:
        return self.name.startswith(_STEP)


class Ends(Protocol):
    """May a run end when enough has been measured, and does it end now? See `ranks`."""

    def ready(self, unit: Unit) -> bool: ...

    def now(self, unit: Unit) -> bool: ...


class Steps:
    """Counts marks and calls ``done`` when enough steps are measured.

    ``synchronize`` waits for the device. ``warm`` is called where a unit's warm-up has ended,
    before its time begins. ``ends`` is asked where no plan says when the run ends.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        clock: Callable[[], float],
        compilations: Callable[[], int],
        synchronize: Callable[[], None],
        warm: Callable[[Unit], None],
        done: Callable[[], None],
        ends: Ends,
    ) -> None:
        self.has_optimizer = False
        self.units: dict[str, Unit] = {}
        self._plan = plan
        self._clock = clock
        self._compilations = compilations
        self._synchronize = synchronize
        self._warm = warm
        self._done = done
        self._ends = ends
        self._ended = False
        self._names: dict[str, int] = {}

    def step_of(self, what: str) -> str:
        """A name of its own for an optimizer: ``"step of AdamW"``, ``"step of AdamW (2)"``."""
        self.has_optimizer = True
        return self._name(_STEP + what)

    def call_of(self, what: str) -> str:
        """A name of its own for what was compiled."""
        return self._name(_CALL + what)

    def _name(self, name: str) -> str:
        self._names[name] = number = self._names.get(name, 0) + 1
        return name if number == 1 else f"{name} ({number})"

    def mark(self, name: str) -> None:
        """One more of a unit has ended."""
        plan = self._plan
        if self._ended or (plan.unit is not None and name != plan.unit):
            return
        unit = self.units.get(name)
        if unit is None:
            unit = self.units[name] = Unit(name)
        unit.marks += 1
        if plan.unit is None and self._ends.now(unit):
            self._end()
            return
        if unit.waited:
            unit.waited += 1
        else:
            unit.count += 1
            if unit.warmup is None:
                self._warm_up(unit)
                return
            unit.seconds = self._clock() - unit.began
            if not self._is_enough(unit):
                return
            self._synchronize()
            unit.seconds = self._clock() - unit.began
            unit.waited = 1
        if plan.unit is not None:
            self._end()
            return
        may_end = unit.is_of_optimizer or not self._is_awaited(unit)
        if may_end and self._ends.ready(unit):
            self._end()

    def _end(self) -> None:
        self._ended = True
        self._done()

    def _warm_up(self, unit: Unit) -> None:
        if self._is_warm(unit):
            unit.warmup = unit.count
            self._warm(unit)
            self._synchronize()
            unit.compilations = self._compilations()
            unit.began = self._clock()

    def _is_awaited(self, unit: Unit) -> bool:
        """May an optimizer's step still come? Not where the program itself compiles it."""
        if any(one.is_of_optimizer for one in self.units.values()):
            return True
        return self.has_optimizer and unit.waited < PATIENCE * unit.steps

    def found(self) -> Unit | None:
        """The program's step; None where there were too few."""
        known = [unit for unit in self.units.values() if unit.steps >= MIN_STEPS]
        unit = max(known, key=lambda unit: (unit.is_of_optimizer, unit.steps), default=None)
        if unit is not None:
            unit.compiled_in_steps = self._compilations() - unit.compilations
        return unit

    def _is_warm(self, unit: Unit) -> bool:
        if self._plan.warmup is not None:
            return unit.count >= self._plan.warmup
        compilations = self._compilations()
        unit.quiet = unit.quiet + 1 if compilations == unit.compilations else 0
        unit.compilations = compilations
        is_quiet = unit.count >= MIN_WARMUP and unit.quiet >= QUIET
        return is_quiet or unit.count >= MAX_WARMUP

    def _is_enough(self, unit: Unit) -> bool:
        if self._plan.steps is not None:
            return unit.steps >= self._plan.steps
        enough = unit.seconds >= self._plan.seconds or unit.steps >= MAX_STEPS
        return enough and unit.steps >= MIN_STEPS
