"""The reports of one command's processes as one text."""

from dataclasses import replace

import pytest
from sample_report import sample

from instrumented_backend.records import Report
from instrumented_backend.views.processes import nothing_observed, render_processes
from instrumented_backend.views.text import render


def report(rank: int, pid: int, calls: int = 3, **run: object) -> Report:
    found = sample()
    found.run = replace(found.run, rank=rank, pid=pid, **run)
    found.summary = replace(found.summary, graph_calls=calls)
    return found


def told(*reports: Report, kept: bool = False) -> str:
    return render_processes(reports, "torchrun train.py", ("summary",), kept)


def test_one_process_is_told_as_ever() -> None:
    assert told(sample()) == render(sample(), ("summary",))


def test_a_row_a_process_and_the_whole_of_rank_0() -> None:
    text = told(report(0, 7, calls=4), report(1, 8), kept=False)
    rows, whole, after = text.split("\n\n")
    assert rows.startswith("instrumented: 2 processes of torchrun train.py\n")
    assert [row.split()[:2] for row in rows.splitlines() if row.strip()[:1].isdigit()] == [
        ["0", "7"],
        ["1", "8"],
    ]
    assert whole.startswith("== rank 0, pid 7\ninstrumented: 1 graph, 4 calls")
    assert after == "next: INSTRUMENTED_DIR=FOLDER keeps the reports of all of them"


def test_who_speaks_for_several_of_rank_0() -> None:
    """A server whose engine compiles, in a process of its own: the one that did most."""
    text = told(report(0, 7, calls=1), report(0, 8, calls=9, worker="EngineCore_0"), kept=True)
    assert "== rank 0, pid 8\n" in text and "EngineCore_0" in text
    assert "with the folder in INSTRUMENTED_DIR" in text


def test_two_runs_of_one_command_are_told_apart() -> None:
    """A script that starts a training and then an evaluation, whose rank 1 is killed."""
    world = {"world_size": 2}
    text = told(
        *(report(rank, 10 + rank, job="a", **world) for rank in (0, 1)),
        report(0, 20, calls=1, job="b", **world),
        report(0, 30, calls=1, world_size=None, job=None),
    )
    first, second, other, whole, _ = text.split("\n\n")
    assert first.startswith("instrumented: 2 ranks of run 1 of torchrun train.py\n")
    assert second.startswith("instrumented: 1 of 2 ranks of run 2 of torchrun train.py\n")
    assert "missing: rank 1 of 2" in second and "missing" not in first
    assert other.startswith("instrumented: 1 process of torchrun train.py\n")
    assert whole.startswith("== rank 0, pid 10\n")


@pytest.mark.parametrize(
    ("torches", "disabled", "said"),
    [
        (0, False, "no process imported torch in a Python that has this package"),
        (1, False, "1 process imported torch, and none compiled anything with Inductor"),
        (3, False, "3 processes imported torch, and none compiled anything with Inductor"),
        (3, True, "INSTRUMENTED_DISABLE=1"),
    ],
)
def test_nothing_observed(torches: int, disabled: bool, said: str) -> None:
    assert nothing_observed(torches, disabled) == f"instrumented: nothing observed: {said}"
