"""Steps of programs, by a clock of the test's own."""

from instrumented_backend.trials.plan import Plan
from instrumented_backend.trials.steps import Ends, Steps, Unit


class Alone:
    """No other ranks."""

    def ready(self, unit: Unit) -> bool:
        return True

    def now(self, unit: Unit) -> bool:
        return False


class Program:
    """Each mark takes a second; ``compiling`` marks are compilations, too."""

    def __init__(self, plan: Plan, compiling: int = 0, ends: Ends | None = None) -> None:
        self.now = 0.0
        self.compiled = 0
        self.left = compiling
        self.warm: list[str] = []
        self.waited = 0
        self.is_done = False
        self.steps = Steps(
            plan,
            clock=lambda: self.now,
            compilations=lambda: self.compiled,
            synchronize=self._synchronize,
            warm=lambda unit: self.warm.append(unit.name),
            done=self._done,
            ends=ends or Alone(),
        )

    def _synchronize(self) -> None:
        self.waited += 1

    def _done(self) -> None:
        self.is_done = True

    def run(self, *names: str, times: int) -> None:
        """Until it is done, or as often."""
        for _ in range(times):
            for name in names:
                if self.is_done:
                    return
                self.now += 1
                if self.left:
                    self.left -= 1
                    self.compiled += 1
                self.steps.mark(name)

    def found(self) -> Unit:
        unit = self.steps.found()
        assert unit is not None
        return unit


def test_a_step_ends_with_the_optimizers() -> None:
    program = Program(Plan(seconds=20.0))
    model, step = program.steps.call_of("Model"), program.steps.step_of("AdamW")
    program.run(model, model, step, times=100)
    unit = program.found()
    assert program.is_done
    # Three marks a step: 7 steps are the first to take 20 s.
    assert (unit.name, unit.warmup, unit.steps, unit.seconds) == ("step of AdamW", 5, 7, 21.0)


def test_an_optimizer_that_steps_late_is_waited_for() -> None:
    """Ten calls of the model to a step: its calls alone would be enough long before."""
    program = Program(Plan(seconds=2.0))
    model = program.steps.call_of("Model")
    program.steps.has_optimizer = True  # it has been made
    program.run(model, times=30)  # 5 that are warm-up, 5 that are measured, 20 more
    assert not program.is_done
    step = program.steps.step_of("SGD")
    program.run(*[model] * 10, step, times=100)
    assert program.is_done and program.found().name == "step of SGD"


def test_an_optimizer_whose_step_is_compiled_is_not_seen() -> None:
    """Its calls are: of these, those that were enough are the steps, and no more."""
    program = Program(Plan(seconds=2.0))
    train = program.steps.call_of("train")
    program.steps.has_optimizer = True
    program.run(train, times=1000)
    unit = program.found()
    assert program.is_done
    assert (unit.name, unit.warmup, unit.steps, unit.seconds) == ("call of train", 5, 5, 5.0)


def test_without_an_optimizer_it_is_the_call_that_is_most_frequent() -> None:
    program = Program(Plan(seconds=1000.0))
    prefill, decode = program.steps.call_of("prefill"), program.steps.call_of("decode")
    program.run(prefill, *[decode] * 20, times=10)
    assert program.found().name == "call of decode"


def test_the_warm_up_ends_when_nothing_is_compiled_any_more() -> None:
    program = Program(Plan(seconds=3.0), compiling=10)
    program.run(program.steps.call_of("Model"), times=100)
    # Ten steps compile; the first look sees one, as do nine more; then three are quiet.
    assert program.found().warmup == 13
    assert program.found().compiled_in_steps == 0


def test_what_compiles_in_each_step_is_measured_so() -> None:
    program = Program(Plan(seconds=3.0), compiling=1000)
    program.run(program.steps.call_of("Model"), times=100)
    unit = program.found()
    assert (unit.warmup, unit.steps, unit.compiled_in_steps) == (50, 5, 5)


def test_a_plan_says_what_is_measured() -> None:
    program = Program(Plan(unit="call of b", warmup=2, steps=30))
    first, second = program.steps.call_of("a"), program.steps.call_of("b")
    program.run(first, second, times=100)
    unit = program.found()
    assert (unit.name, unit.warmup, unit.steps, unit.seconds) == ("call of b", 2, 30, 60.0)
    assert list(program.steps.units) == ["call of b"]
    assert program.warm == ["call of b"]
    assert program.waited == 2  # at both ends


def test_a_program_of_few_steps_has_none() -> None:
    program = Program(Plan())
    program.run(program.steps.call_of("Model"), times=8)
    assert program.steps.found() is None
    assert Program(Plan()).steps.found() is None


def test_names_that_are_alike() -> None:
    steps = Program(Plan()).steps
    assert [steps.step_of("SGD"), steps.step_of("SGD")] == ["step of SGD", "step of SGD (2)"]
    assert [steps.call_of("f"), steps.call_of("g"), steps.call_of("f")] == [
        *("call of f", "call of g", "call of f (2)")
    ]
