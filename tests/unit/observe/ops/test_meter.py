"""The op meter's Python part, with a native part that only notes what it is told."""

from typing import Any

from instrumented_backend.observe.failures import Failures
from instrumented_backend.observe.native.gate import Gate
from instrumented_backend.observe.ops.meter import OpMeter


class Told:
    """In the place of the library."""

    def __init__(self) -> None:
        self.quiet: list[tuple[int, bool]] = []
        self.others: list[str] = []

    def op_meter_quiet(self, change: int, compiles: bool, since_ns: int) -> None:
        self.quiet.append((change, since_ns > 0))

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self.others.append(name)


def meter() -> OpMeter:
    made = OpMeter("auto", Failures(), False, Gate())
    made._stopped = True  # it opens no windows
    return made


def test_a_compilation_is_quiet() -> None:
    made = meter()
    made._lib = told = Told()
    with made.compiling(), made.compiling():
        pass
    assert told.quiet == [(1, False), (1, False), (-1, False), (-1, False)]


def test_the_native_part_comes_during_a_compilation() -> None:
    """Its time is told of once, from its start on, with those inside it."""
    made, told = meter(), Told()
    with made.compiling():
        made._lib = told
        with made.compiling():
            assert told.quiet == []
    assert told.quiet == [(1, True), (-1, False)]
    with made.compiling():
        pass
    assert told.quiet[2:] == [(1, False), (-1, False)]


def test_a_pause_ends_the_window_that_is_planned() -> None:
    made = meter()
    made._lib = told = Told()
    made.pause(True)
    assert told.others == ["op_meter_close", "op_meter_wake"]


def test_it_has_stopped_before_the_planner_could_wait() -> None:
    """What the windows cost cannot be asked for any more, and none is to open."""
    made, told = meter(), Told()

    class Stopping(Told):
        def __getattr__(self, name: str) -> Any:
            made._lib = None
            return super().__getattr__(name)

    made._lib = told = Stopping()
    made._plan()
    assert told.others == ["op_meter_awake"] and made._failures.notes == []
