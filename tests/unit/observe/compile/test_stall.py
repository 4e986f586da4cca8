"""More than a tenth of five minutes in recompiling is said, once."""

import pytest

from instrumented_backend.observe.compile.stall import Stall
from instrumented_backend.records import GuardRecord, RecompileRecord


def record(function: str, *guards: GuardRecord) -> RecompileRecord:
    return RecompileRecord("0/1", function, "/home/me/train.py", 39, "size", guards=list(guards))


SIZE = GuardRecord("shape", "size of x in dimension 1", ["64", "48"], count=3, cure="mark_dynamic")
MODE = GuardRecord("training", "self.training (train() and eval())", ["True", "False"], count=1)


class Clock:
    now_s = 5000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_tenth_is_not_more_than_a_tenth(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    stall = Stall(clock)
    for _ in range(3):
        stall.recompiled(10.0, record("forward", SIZE))
    assert not caplog.records
    stall.recompiled(0.5, None)
    (said,) = caplog.records
    assert said.levelname == "WARNING"
    assert said.getMessage() == (
        "30 s of the last 5 minutes (10 %) went into recompiling, most of it of forward "
        "(train.py:39): size of x in dimension 1: 64 → 48; cure: mark_dynamic"
    )


def test_once(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    stall = Stall(clock)
    for _ in range(50):
        stall.recompiled(10.0, record("forward", SIZE))
    assert len(caplog.records) == 1


def test_what_is_longer_ago_does_not_count(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    """6 s a minute are a tenth, and never more."""
    stall = Stall(clock)
    for _ in range(1000):
        stall.recompiled(6.0, record("forward", SIZE))
        clock.now_s += 60.0
    assert not caplog.records
    assert len(stall._recent) <= 5


def test_the_function_that_took_most_and_its_guard(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    stall = Stall(clock)
    many, much = record("many", MODE), record("much", MODE, SIZE)
    for _ in range(10):
        stall.recompiled(1.0, many)
    stall.recompiled(15.0, much)
    stall.recompiled(15.0, None)
    (said,) = caplog.records
    assert "most of it of much" in said.getMessage() and "dimension 1" in said.getMessage()


def test_nothing_is_known_of_it(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    Stall(clock).recompiled(100.0, None)
    assert caplog.messages == ["100 s of the last 5 minutes (33 %) went into recompiling"]
