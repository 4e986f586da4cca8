"""Ranks of a job end with the same step, though each finds its steps by its own clock."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from instrumented_backend.trials import ranks
from instrumented_backend.trials.plan import Plan
from instrumented_backend.trials.steps import Steps


def torch_of(rank: int, world_size: int = 2) -> Any:
    return SimpleNamespace(
        distributed=SimpleNamespace(
            is_available=lambda: True,
            is_initialized=lambda: True,
            get_rank=lambda: rank,
            get_world_size=lambda: world_size,
        )
    )


class Rank:
    """``step_s`` is what a step takes there; ``compiling`` marks are compilations, too."""

    def __init__(self, folder: Path, torch: Any, step_s: float, compiling: int = 0) -> None:
        self.now, self.step_s, self.compiling = 0.0, step_s, compiling
        self.ended_after: int | None = None
        self.marks = 0
        self.steps = Steps(
            Plan(seconds=10.0),
            clock=lambda: self.now,
            compilations=lambda: min(self.marks, self.compiling),
            synchronize=lambda: None,
            warm=lambda unit: None,
            done=self._done,
            ends=ranks.Ends(torch, folder),
        )
        self.name = self.steps.step_of("SGD")

    def _done(self) -> None:
        self.ended_after = self.marks

    def mark(self) -> None:
        if self.ended_after is None:
            self.marks += 1
            self.now += self.step_s
            self.steps.mark(self.name)


@pytest.mark.parametrize("fast", [0.5, 1.0, 2.0])  # against rank 0
@pytest.mark.parametrize("compiling", [0, 40])
def test_all_end_with_the_step_that_the_first_names(
    tmp_path: Path, fast: float, compiling: int
) -> None:
    """Also those whose warm-up is not over yet."""
    first = Rank(tmp_path, torch_of(0), 1.0)
    other = Rank(tmp_path, torch_of(1), fast, compiling)
    for _ in range(100):  # no rank is more than one step ahead
        other.mark()
        first.mark()
    # Five that are warm-up, ten that are measured, and the one that all know of.
    assert first.ended_after == other.ended_after == 16
    found = first.steps.found()
    assert found is not None and (found.warmup, found.steps, found.seconds) == (5, 10, 10.0)


def test_one_that_is_far_ahead_ends_as_it_is_told(tmp_path: Path) -> None:
    first, other = Rank(tmp_path, torch_of(0), 1.0), Rank(tmp_path, torch_of(1), 1e-6)
    for _ in range(50):
        other.mark()
    for _ in range(100):
        first.mark()
    other.mark()
    assert (first.ended_after, other.ended_after) == (16, 51)


def test_one_alone_waits_for_nobody(tmp_path: Path) -> None:
    alone = Rank(tmp_path, torch_of(0, world_size=1), 1.0)
    for _ in range(100):
        alone.mark()
    assert alone.ended_after == 15
    assert list(tmp_path.iterdir()) == []
