"""Reports at rank 0 through a store that is there, that is not, or that never answers."""

import threading
from typing import Any

import pytest
from rank_reports import rank_report
from torch.distributed import HashStore

from instrumented_backend.observe import gathering
from instrumented_backend.observe.failures import Failures
from instrumented_backend.observe.gathering import Gathering
from instrumented_backend.observe.job import MAX_GAPS, gaps
from instrumented_backend.torch_compat import distributed


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bounds themselves are what some tests come to."""
    monkeypatch.setattr(gathering, "WAIT_S", 0.3)
    monkeypatch.setattr(gathering, "SEND_S", 0.3)


def use(monkeypatch: pytest.MonkeyPatch, store: Any) -> None:
    monkeypatch.setattr(distributed, "own_store", lambda timeout_s: store)


def ranks(reports: Any) -> list[int]:
    return [report.run.rank for report in reports]


def announced(store: Any, rank: int) -> None:
    store.wait([f"instrumented_backend/here/{rank}"])


def test_all_ranks_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "WAIT_S", 60.0)
    store = HashStore()
    use(monkeypatch, store)
    failures = Failures()
    parts = [Gathering(failures, rank, 3) for rank in range(3)]
    for rank in (1, 2):
        announced(store, rank)
        assert parts[rank].exchange(rank_report(rank, world_size=3)) is None
    found = parts[0].exchange(rank_report(0, world_size=3))
    assert ranks(found) == [0, 1, 2]
    assert failures.notes == []


def test_a_rank_that_was_killed_is_not_waited_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    store = HashStore()
    use(monkeypatch, store)
    parts = [Gathering(Failures(), rank, 3) for rank in range(3)]
    announced(store, 1)
    announced(store, 2)
    parts[2].exchange(rank_report(2, world_size=3))
    assert ranks(parts[0].exchange(rank_report(0, world_size=3))) == [0, 2]


def test_ranks_that_compile_nothing_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "WAIT_S", 3600.0)
    use(monkeypatch, HashStore())
    assert ranks(Gathering(Failures(), 0, 1000).exchange(rank_report(0))) == [0]


class Gone:
    """As a store whose server has ended: each call raises."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("Connection reset by peer")


@pytest.mark.parametrize("rank", [0, 1])
def test_the_store_is_gone(monkeypatch: pytest.MonkeyPatch, rank: int) -> None:
    use(monkeypatch, Gone())
    failures = Failures()
    found = Gathering(failures, rank, 2).exchange(rank_report(rank))
    assert found is None if rank else ranks(found) == [0]
    assert failures.notes == []


@pytest.mark.parametrize("rank", [0, 1])
def test_the_store_never_answers(monkeypatch: pytest.MonkeyPatch, rank: int) -> None:
    """The host of it is frozen: the end comes all the same."""
    for_ever = threading.Event()
    monkeypatch.setattr(distributed, "own_store", lambda timeout_s: for_ever.wait())
    found = Gathering(Failures(), rank, 2).exchange(rank_report(rank))
    assert found is None if rank else ranks(found) == [0]


def test_a_failure_of_ours_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, None)
    failures = Failures()
    Gathering(failures, 1, 2).exchange(rank_report(1))
    (note,) = failures.notes
    assert note.text.startswith("lost: the other ranks' reports: AttributeError")


def test_the_longest_gaps_are_kept_in_order() -> None:
    """One second between all, but two before each hundredth: of 1,000, ten."""
    at, issued = 0.0, []
    for number in range(1000):
        at += 2.0 if number % 100 == 50 else 1.0
        issued.append(distributed.Collective("0", number, at))
    found = gaps(issued)
    assert len(found) == MAX_GAPS
    long = [gap for gap in found if gap.seconds == 2.0]
    assert [gap.next_number for gap in long] == list(range(50, 1000, 100))
    assert [gap.start_at for gap in found] == sorted(gap.start_at for gap in found)
    assert all(gap.end_at == gap.start_at + gap.seconds for gap in found)
