"""Times of functions that take what a test says, and how often they are called for it."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from opbench import timing
from opbench.results import Timing
from opbench.timing import add_times_outside, time_all


class Blocks:
    """In the place of a block of calls, as long as blocks are: each call takes ``us[function]``."""

    def __init__(self, us: dict[Callable[[], Any], float]) -> None:
        self._us = us

    def __call__(self, function: Callable[[], Any], device: str) -> list[float]:
        us = self._us[function]
        function()  # untimed, as the benchmark that is used has it
        for _ in range(max(1, int(1e3 * timing._BLOCK_MS / us))):
            function()
        return [us]


def test_known_times(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[str] = []

    def slow() -> None:
        turns.append("slow")

    def fast() -> None:
        turns.append("fast")

    monkeypatch.setattr(timing, "_block_us", Blocks({slow: 4000.0, fast: 1000.0}))
    found = time_all({"slow": slow, "fast": fast}, repeats=2, device="cpu")
    assert found["slow"] == Timing(4000.0, 4000.0, 4000.0)
    assert found["fast"] == Timing(1000.0, 1000.0, 1000.0)
    # They take turns: in 2 repeats of 9 rounds, of which each other one begins with the other.
    changes = sum(one != other for one, other in itertools.pairwise(turns))
    assert changes >= 2 * 9


def test_a_slow_call_is_not_made_a_hundred_times(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def slow() -> None:
        nonlocal calls
        calls += 1

    monkeypatch.setattr(timing, "_block_us", Blocks({slow: 800_000.0}))
    found = time_all({"slow": slow}, repeats=1, device="cpu")["slow"]
    assert found == Timing(800_000.0, None, None)  # timed once: of the spread nothing is known
    assert calls == 5  # once before all, and two in each of two blocks


def test_a_block_on_a_cpu() -> None:
    calls: list[None] = []
    (us,) = timing._block_us(lambda: calls.append(None), "cpu")
    assert calls and us >= 0


def test_what_is_faster_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    def eager() -> None:
        """In a CUDA graph it takes longer than outside."""

    def inductor() -> None:
        """In a CUDA graph it takes half of what it takes outside."""

    monkeypatch.setattr(timing, "_block_us", Blocks({eager: 4000.0, inductor: 4000.0}))
    timings = {"eager": Timing(5000.0, None, None), "inductor": Timing(2000.0, None, None)}
    add_times_outside({"eager": eager, "inductor": inductor}, timings, "cpu")
    assert timings["eager"].outside_graph_us == 4000.0
    assert timings["inductor"].outside_graph_us is None
