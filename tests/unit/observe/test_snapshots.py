"""When snapshots are taken, on a clock that the test moves; and what stops them."""

import itertools
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from sample_report import sample

from instrumented_backend.observe import snapshots as snapshots_module
from instrumented_backend.observe.failures import Failures
from instrumented_backend.observe.snapshots import Budget, Busy, Snapshots, Stopped
from instrumented_backend.records import read_report
from instrumented_backend.views.files import CurrentFiles, write_files


class World:
    """A clock, what has changed, and what was taken when."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.changes = 0
        self.taken_s: list[float] = []
        self.works = True
        self.failures = Failures()
        self.snapshots = Snapshots(
            self.take, lambda: self.changes, self.failures, clock=lambda: self.now_s
        )
        self.snapshots._thread = object()  # type: ignore[assignment]  # the test is the thread
        self.snapshots.wanted = True

    def take(self) -> bool:
        self.taken_s.append(self.now_s)
        return self.works

    def until(self, end_s: float, changes: bool = True) -> list[float]:
        """Let it run; the moments, since the beginning, of those that were taken."""
        before = len(self.taken_s)
        while (due_s := self.snapshots.due_s()) <= 1000.0 + end_s:
            self.now_s = max(self.now_s, due_s)
            self.changes += changes
            self.snapshots._one()
            self.snapshots._cost_s = 0.0
        self.now_s = 1000.0 + end_s
        return [taken_s - 1000.0 for taken_s in self.taken_s[before:]]


@pytest.fixture
def world() -> World:
    return World()


def test_intervals_grow_to_ten_seconds(world: World) -> None:
    assert world.until(40) == [1, 3, 7, 15, 25, 35]


def test_and_to_one_percent_of_the_run(world: World) -> None:
    taken_s = world.until(100_000)
    for before, after in itertools.pairwise(taken_s):
        assert after - before <= max(10.0, 0.01 * before) + 1e-6
    assert len(taken_s) < 100 + 470  # ten seconds each for 1000 s, then 1.01 ** n = 100


def test_soon_after_a_compilation(world: World) -> None:
    world.until(50)
    world.snapshots.soon()
    assert world.until(52)[0] == pytest.approx(50.3)


def test_compilations_that_follow_each_other_are_one(world: World) -> None:
    world.until(50)
    for _ in range(1000):
        world.snapshots.soon()
    assert len(world.until(50.9)) == 1


def test_costly_ones_wait_after_compilations_but_not_otherwise(world: World) -> None:
    world.until(50)
    last_s = world.snapshots._last_s
    world.snapshots._cost_s = 0.2
    world.snapshots.soon()
    # One in twenty seconds would be 1 % of the time; but ten are the promise.
    assert world.snapshots.due_s() == pytest.approx(last_s + 10)
    world.snapshots._cost_s = 0.06  # and in six
    assert world.snapshots.due_s() == pytest.approx(last_s + 6)


@pytest.fixture
def cpu_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The thread's CPU time, for a test to move."""
    now_s = [0.0]
    clock = SimpleNamespace(thread_time=lambda: now_s[0])
    monkeypatch.setattr(snapshots_module, "time", clock)
    return now_s


@pytest.mark.parametrize("apart", [False, True])
def test_costly_ones_do_not_come_each_second_after_compilations(
    world: World, cpu_s: list[float], apart: bool
) -> None:
    """But for what has a budget of its own."""

    def take() -> bool:
        cpu_s[0] += 0.02
        if apart:
            world.snapshots.apart(0.02)
        return True

    world.snapshots._take = take
    for _ in range(2):
        world.changes += 1
        world.snapshots.soon()
        world.now_s += 100.0
        world.snapshots._one()
        assert world.snapshots.due_s() == pytest.approx(world.now_s + (1 if apart else 10))


def test_nothing_is_taken_where_nothing_has_changed(world: World) -> None:
    world.until(50)
    assert world.until(500, changes=False) == []
    assert world.until(510) != []


def test_what_could_not_be_written_is_tried_again(world: World) -> None:
    world.changes = 1
    world.works = False
    assert len(world.until(40, changes=False)) == 6
    world.works = True
    assert len(world.until(100, changes=False)) == 1


def test_a_failure_is_a_note_and_it_goes_on(world: World) -> None:
    def fail() -> bool:
        raise MemoryError("injected")

    world.snapshots._take = fail
    assert world.until(40) == []
    assert [note.text[:40] for note in world.failures.notes] == [
        "lost: a snapshot: MemoryError: injected "
    ]
    world.snapshots._take = world.take
    assert world.until(60) != []


def test_the_end_of_the_program_ends_one_that_is_under_way(world: World) -> None:
    def take() -> bool:
        world.snapshots._stopped = True
        world.snapshots.go_on()
        raise AssertionError("it went on")

    world.snapshots._take = take
    world.changes += 1
    world.snapshots._one()
    assert world.failures.notes == []
    assert world.snapshots._idle.is_set()
    with pytest.raises(Stopped):
        world.snapshots.go_on()


def test_stop_does_not_wait_where_nothing_is_written(world: World) -> None:
    world.snapshots.stop()
    world.snapshots.soon()
    assert world.snapshots._asked_s is None


def test_a_forked_child_starts_with_nothing(world: World) -> None:
    world.snapshots.stop()
    world.snapshots.after_fork()
    assert world.snapshots._thread is None and not world.snapshots._stopped


def test_no_thread_where_nobody_wants_files() -> None:
    snapshots = Snapshots(lambda: True, lambda: 0, Failures())
    snapshots.soon()
    assert snapshots._thread is None


def test_a_process_that_may_have_no_thread_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have one later."""
    taken = threading.Event()

    def take() -> bool:
        taken.set()
        return True

    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(snapshots_module, "SOON_S", 0.0)
    snapshots = Snapshots(take, lambda: 1, Failures())
    snapshots.wanted = True
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refused)
        with pytest.raises(RuntimeError):
            snapshots.soon()
    snapshots.soon()
    assert taken.wait(60)
    snapshots.stop()


def test_nothing_is_imported_on_the_thread() -> None:
    """Who forks meanwhile would have a child for which that import never ends."""
    program = """
import sys
from instrumented_backend.observe.failures import Failures
from instrumented_backend.observe.live_file import LiveFile
name = "instrumented_backend.records.encoding"
for saver in (None, object()):
    LiveFile(saver, None, Failures(), list, tuple, None)
    print(name in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "False\nTrue\n", done.stderr


def test_the_last_report_is_not_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a snapshot on a disk so slow that nobody waits for it."""
    begun, goes_on = threading.Event(), threading.Event()
    write, program = os.write, threading.current_thread()

    def slow(file: int, content: bytes) -> int:
        if threading.current_thread() is not program:
            begun.set()
            assert goes_on.wait(60)
        return write(file, content)

    files = CurrentFiles(tmp_path, None)
    snapshots = Snapshots(
        lambda: files.save(sample(), snapshots.go_on) == [], lambda: 1, Failures()
    )
    snapshots.wanted = True
    monkeypatch.setattr(snapshots_module, "SOON_S", 0.0)
    monkeypatch.setattr(snapshots_module, "PATIENCE_S", 0.01)
    monkeypatch.setattr(os, "write", slow)
    snapshots.soon()
    assert begun.wait(60)
    snapshots.stop()
    last = sample()
    last.summary.graph_calls = 99
    assert write_files(last, tmp_path) == {}
    goes_on.set()
    assert snapshots._thread is not None
    snapshots._thread.join(60)
    assert read_report(tmp_path / "report.rank0.pid17.json").summary.graph_calls == 99
    assert list(tmp_path.glob(".*")) == []


def test_what_is_not_in_each_snapshot_keeps_to_its_share() -> None:
    now_s = 0.0
    budget = Budget(0.0005, clock=lambda: now_s)
    listed_s = 0.0
    for second in range(100_000):
        now_s = float(second)
        if budget.allows():
            budget.spent(0.2)
            listed_s += 0.2
    # And the very first one.
    assert listed_s == pytest.approx(0.0005 * 100_000 + 0.2, abs=0.21)


def test_a_process_that_only_sleeps_is_not_busy() -> None:
    now_s = cpu_s = 100.0
    busy = Busy(clock=lambda: now_s, cpu=lambda: cpu_s)
    turns = []
    for worked_s in (0.0, 0.1, 0.99, 1.01, 10.0, 0.0):
        now_s += 10.0
        cpu_s += worked_s
        turns.append(busy.turns())
    assert turns == [0, 0, 0, 1, 2, 2]
