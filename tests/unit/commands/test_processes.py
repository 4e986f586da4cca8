"""Which reports are of processes that run on this machine."""

import os
import platform
from datetime import UTC, datetime

import pytest

from instrumented_backend.commands import processes
from instrumented_backend.records import RunSection


def run_of(host: str | None, pid: int | None = None, started: str | None = None) -> RunSection:
    run = RunSection("2.13.0", "cpu", 0, os.getpid() if pid is None else pid)
    run.host, run.started = host, started
    return run


@pytest.mark.parametrize(
    ("host", "expected"), [(platform.node(), True), (None, True), ("another-node", False)]
)
def test_a_process_of_another_machine_is_none_of_this_one(host: str | None, expected: bool) -> None:
    """Its number may be somebody's here; a report of an earlier release has no host."""
    assert processes.is_alive(run_of(host)) == expected


def test_a_clock_that_was_set_forward() -> None:
    """By an hour, after the program had begun: its last report knows the new time."""
    known = processes.find(os.getpid())
    assert known is not None
    an_hour_ago = datetime.fromtimestamp(known.started_at - 3600, UTC).isoformat()
    run = run_of(None, started=an_hour_ago)
    assert not processes.is_alive(run)
    run.seen_at = known.started_at + 10
    run.wall_s = run.seen_at - known.started_at
    assert processes.is_alive(run)
    run.wall_s += 3600  # it is as old as that: the process of now is another
    assert not processes.is_alive(run)


def test_a_later_process_of_the_same_number_did_not_write_it() -> None:
    assert processes.is_alive(run_of(None, started="2999-01-01T00:00:00+00:00"))
    assert not processes.is_alive(run_of(None, started="1999-01-01T00:00:00+00:00"))
