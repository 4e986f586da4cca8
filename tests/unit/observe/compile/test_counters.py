"""Whose compilation moved which counter."""

import threading
from collections.abc import Iterator

import pytest

from instrumented_backend.observe.graphs import counters as module
from instrumented_backend.observe.graphs.counters import CounterLedger, Counts, nested


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counts]:
    """Counters that a test moves by hand."""
    values: Counts = {("inductor", "a"): 5}
    monkeypatch.setattr(module, "read_counters", lambda: dict(values))
    yield values


def bump(values: Counts, by: int) -> None:
    values["inductor", "a"] += by


def test_nested_compilations_are_not_counted_twice(fake: Counts) -> None:
    ledger: CounterLedger[str] = CounterLedger()
    ledger.reset()
    outer: Counts = {}
    inner: Counts = {}
    bump(fake, 1)  # outside
    ledger.enter("outer", outer)
    bump(fake, 10)
    ledger.enter("inner", inner)
    assert ledger.current() == "inner"
    bump(fake, 100)
    ledger.leave()
    bump(fake, 1000)
    ledger.leave()
    bump(fake, 10_000)
    ledger.settle()
    assert outer == {("inductor", "a"): 1010}
    assert inner == {("inductor", "a"): 100}
    assert ledger.outside == {("inductor", "a"): 10_001}
    assert ledger.current() is None


def test_what_was_there_before_is_nobodys(fake: Counts) -> None:
    ledger: CounterLedger[str] = CounterLedger()
    ledger.reset()
    ledger.settle()
    assert ledger.outside == {}


def test_a_counter_that_the_program_resets(fake: Counts) -> None:
    ledger: CounterLedger[str] = CounterLedger()
    ledger.reset()
    counts: Counts = {}
    ledger.enter("graph", counts)
    fake["inductor", "a"] = 2  # 5 → reset → 2
    ledger.leave()
    assert counts == {("inductor", "a"): 2}


def test_work_on_another_thread_goes_to_the_one_that_compiles(fake: Counts) -> None:
    ledger: CounterLedger[str] = CounterLedger()
    ledger.reset()
    counts: Counts = {}
    ledger.enter("graph", counts)
    bump(fake, 3)
    thread = threading.Thread(target=ledger.settle)
    thread.start()
    thread.join()
    ledger.leave()
    assert counts == {("inductor", "a"): 3}


def test_trailing_work_is_credited(fake: Counts) -> None:
    ledger: CounterLedger[str] = CounterLedger()
    ledger.reset()
    counts: Counts = {}
    bump(fake, 4)
    ledger.credit(counts)
    assert counts == {("inductor", "a"): 4} and ledger.outside == {}


def test_nested() -> None:
    assert nested({("g", "x"): 1, ("g", "y"): 2, ("h", "x"): 3}) == {
        "g": {"x": 1, "y": 2},
        "h": {"x": 3},
    }
