"""The op meter's Python part, with a native part that only notes what it is told."""

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from instrumented_backend.observe.failures import Failures
from instrumented_backend.observe.native import build as native
from instrumented_backend.observe.native import structs
from instrumented_backend.observe.native.gate import Gate
from instrumented_backend.observe.ops import meter as module
from instrumented_backend.observe.ops.meter import OpMeter
from instrumented_backend.observe.ops.observed import Before
from instrumented_backend.records import notes


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


def test_a_snapshot_does_not_cut_a_compilation_that_the_native_part_has_not_been_told_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its first piece would be a gap without an op, of which nothing is known."""
    longest: list[float] = []
    reading = SimpleNamespace(gpu=SimpleNamespace(), observed=lambda *_: None)
    monkeypatch.setattr(
        module.Copied, "of", lambda lib, listed, longest_s, _: longest.append(longest_s) or reading
    )
    made, told = meter(), Told()
    with made.compiling():
        made._lib = told
        with made.compiling():
            made.read()
        made.read(False, 3.0)
    made.read()
    with made.compiling():
        made.read(False, 3.0)
    assert longest == [module.NEVER_S, module.NEVER_S, 0.0, 3.0]


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


@pytest.fixture
def unbuilt(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """The native part is not there until this is called."""
    built = threading.Event()

    def load(**_: Any) -> Told:
        built.wait()
        raise native.NativeError("no compiler")

    monkeypatch.setattr(native, "load", load)
    yield built.set
    built.set()


def started(mode: str) -> OpMeter:
    made = OpMeter(mode, Failures(), False, Gate())
    made._patched = True  # Dynamo is left alone
    made.start()
    assert made._loader is not None
    return made


def test_the_first_call_waits_for_what_is_being_built_and_no_later_one(
    unbuilt: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "PATIENCE_S", 1.0)
    made = started("auto")
    made.enter(1)
    made.leave(1)
    ((code, text),) = [(note.code, note.text) for note in made._failures.notes]
    assert code == notes.SLOWER and text.endswith("to be built; it is not there yet")
    assert made.unavailable == "no op meter: it was still being built"
    waits: list[float] = []
    monkeypatch.setattr(made._loaded, "wait", waits.append)
    made.enter(1)
    made.count_graphs()
    assert waits == [0.0, 0.0]
    monkeypatch.undo()
    unbuilt()
    made._loader.join()
    assert made.unavailable == "no op meter: no compiler"


def test_the_end_does_not_wait_as_long_as_a_build_takes(unbuilt: Callable[[], None]) -> None:
    made = started("auto")
    made.count_graphs(patience_s=0.1)
    assert made._loader.is_alive()


def test_always_waits_no_longer_than_a_build_takes(
    unbuilt: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "PATIENCE_S", 0.1)
    made = started("always")
    made.enter(1)
    assert made._loader.is_alive() and made._is_late


class Beginning(Told):
    """Notes how it is told of the program's beginning and of windows."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[tuple[int, int]] = []
        self.opened: list[int] = []

    def op_meter_begin(self, since_ns: int, compile_ns: int) -> None:
        self.begun.append((since_ns, compile_ns))

    def op_meter_open(self, whole: int) -> None:
        self.opened.append(whole)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The nanosecond it is, as its only item."""
    now = [0]
    monkeypatch.setattr(module.time, "monotonic_ns", lambda: now[0])
    yield now


def late(clock: list[int]) -> tuple[OpMeter, Beginning]:
    """A program that began at 1000 and whose native part is still being built."""
    made = OpMeter("always", Failures(), False, Gate())
    made._is_late = True
    made._work_done = structs.Work  # type: ignore[method-assign]
    clock[0] = 1000
    made.begin()
    return made, Beginning()


def comes(made: OpMeter, lib: Beginning, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "load", lambda **_: lib)
    monkeypatch.setattr(module.work, "done", lambda _: structs.Work())
    made._gate = SimpleNamespace(regions=lambda *_: None, want=lambda *_, **__: None)  # type: ignore[assignment]
    monkeypatch.setattr(module.gc, "callbacks", [])
    made._load()
    assert made._failures.notes == []


def test_what_ran_before_the_native_part_came_is_set_apart(
    clock: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    # 300 of the program's, 500 of a compilation, 50 of the program's.
    made, lib = late(clock)
    clock[0] = 1300
    with made.compiling():
        clock[0] = 1800
    clock[0] = 1850
    comes(made, lib, monkeypatch)
    assert made._early.before == Before(unseen_ns=350, compile_ns=500)
    assert lib.begun == [(1850, 500)]
    assert lib.opened == [module.MAIN_GAP] and not made._is_whole


def test_it_comes_during_the_main_threads_compilation(
    clock: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first gap is the compilation, and what comes after it is seen whole."""
    # 300 of the program's; then 500, 20 and 400 of compilations, the last of which goes on.
    made, lib = late(clock)
    clock[0] = 1300
    with made.compiling():
        clock[0] = 1800
    clock[0] = 1820
    with made.compiling():
        clock[0] = 2000
        comes(made, lib, monkeypatch)
        assert made._early.before == Before(unseen_ns=320, compile_ns=500)
        assert lib.begun == [(1820, 500)] and lib.opened == []
        clock[0] = 2220
    assert made._early.before == Before(unseen_ns=320, compile_ns=900)
    assert lib.opened == [module.MAIN_GAP]


def test_another_threads_compilation_is_not_the_main_threads_gap(
    clock: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The window comes at its end, and what the main thread ran meanwhile is not seen whole."""
    made, lib = late(clock)
    began, may_end = threading.Event(), threading.Event()

    def compiles() -> None:
        with made.compiling():
            began.set()
            may_end.wait()

    thread = threading.Thread(target=compiles)
    thread.start()
    began.wait()
    clock[0] = 1400
    comes(made, lib, monkeypatch)
    assert made._early.before == Before(unseen_ns=400) and lib.begun == [(1400, 0)]
    may_end.set()
    thread.join()
    assert lib.opened == [module.NO_GAP]


def test_what_a_call_waited_for_the_native_part_is_not_the_programs(
    clock: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    # 100 of the program's, 7000 of a wait in vain, 30 more, and a wait of 600 until it comes.
    made, lib = late(clock)
    waits = iter([(1100, 8100, False), (8130, 8730, True)])

    def wait(_: float) -> None:
        _, clock[0], there = each
        if there:
            comes(made, lib, monkeypatch)

    monkeypatch.setattr(made, "_wait_for_native", wait)
    for each in waits:
        clock[0] = each[0]
        made.enter(1)
    assert made._early.before == Before(unseen_ns=130, waited_ns=7600)
    assert lib.begun == [(8730, 0)] and lib.opened == [module.MAIN_GAP]


def test_it_was_late_but_not_later_than_the_program(
    clock: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has been observed from `torch.compile` on is exact."""
    made, lib = late(clock)
    clock[0] = 5000
    comes(made, lib, monkeypatch)
    clock[0] = 6000
    made.begin()
    assert made._is_whole and made._early.before == Before()
    assert lib.begun[-1] == (6000, 0)


@pytest.mark.parametrize(
    ("spent_s", "most_s"),
    [
        (0.0, 0.04),
        (0.0399, 0.0419),  # hardly anything is left, and a compilation's own share is more
        (0.05, 0.052),
    ],
)
def test_what_a_window_after_a_compilation_may_cost(
    spent_s: float, most_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = OpMeter("always", Failures(), False, Gate())
    made._lib, made._windows = Beginning(), 1
    work = structs.Work(op_ns=round(1e9 * spent_s))
    monkeypatch.setattr(made, "_work_done", lambda: work)
    made._warm_up(own_s=0.002)
    assert made._is_warm_up and made._most_s == pytest.approx(most_s)
