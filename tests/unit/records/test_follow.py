"""Reports read again as they change: what vanishes, is swapped, damaged, or left by the dead."""

import os
from collections import deque
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
from live_reports import STARTED_AT, compiling, keep, live, path_of
from paths import DATA
from sample_report import sample

from instrumented_backend.records import Report, ReportError, RunSection, find_reports, read_report
from instrumented_backend.records import follow as module
from instrumented_backend.records.follow import FollowedReport, Follower, Moment
from instrumented_backend.records.live import LiveReport, read_live


class Clock:
    """In the place of the module ``time``; the machine's and the program's clock agree."""

    def __init__(self) -> None:
        self.s = STARTED_AT

    def monotonic(self) -> float:
        return self.s - STARTED_AT

    def time(self) -> float:
        return self.s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


class Alive(set[int]):
    """The processes that run here."""

    def __call__(self, run: RunSection) -> bool:
        return run.pid in self


def following(folder: Path, alive: Callable[[RunSection], bool] = lambda run: False) -> Follower:
    return Follower(lambda: find_reports(folder) if folder.exists() else [], alive)


def states(follower: Follower, clock: Clock) -> list[str]:
    return [each.state(clock.monotonic()) for each in follower.all()]


# --- Rates --------------------------------------------------------------------------------------


def followed(*moments: tuple[float, int]) -> FollowedReport:
    return FollowedReport(Path("x"), moments=deque(Moment(*moment) for moment in moments))


def test_rates_by_hand() -> None:
    # 100 calls in 10 s, none in 10, 300 in 20: 10/s, 0/s, 15/s.
    known = followed((0, 0), (10, 100), (20, 100), (40, 400))
    assert known.rates(4) == [10.0, 0.0, 15.0, 15.0]
    assert known.rates(2) == [5.0, 15.0]
    # Its parts are 16 s: 10 x 10 + 6 x 0, 4 x 0 + 12 x 15, ... of 40 s in 2.5 parts; so 40 / 5 = 8:
    # 80, 20, 0 to 24 s: 4 x 15 = 60, 120, 120.
    assert known.rates(5) == pytest.approx([10.0, 2.5, 7.5, 15.0, 15.0])
    assert known.latest() == (15.0, 20.0)


def test_the_latest_rate_is_over_some_seconds() -> None:
    """Or it jumps, where a report comes each second."""
    known = followed((0, 0), (1, 10), (2, 10), (3, 10), (4, 10), (5, 10), (6, 60))
    assert known.latest() == (50 / 5, 5)
    assert followed((0, 0), (2, 10)).latest() == (5.0, 2)
    assert followed((0, 0)).latest() is None and followed().rates(3) == []


def test_no_rate_before_the_counting_began_afresh(tmp_path: Path, clock: Clock) -> None:
    """After a reset, or where the clock was set back, nothing is negative."""
    follower = following(tmp_path)
    for after_s, calls in ((100, 50), (110, 70), (105, 80), (115, 90), (125, 3), (135, 13)):
        clock.s = STARTED_AT + after_s
        keep(tmp_path, live(after_s=after_s, calls=calls))
        follower.look()
    (known,) = follower.all()
    assert [moment.calls for moment in known.moments] == [3, 13]
    assert known.latest() == (1.0, 10.0)


def test_moments_are_bounded(tmp_path: Path, clock: Clock) -> None:
    known = FollowedReport(Path("x"))
    for number in range(5 * module.KEPT_MOMENTS):
        module._add_moment(known, Moment(number, number))
    assert len(known.moments) == module.KEPT_MOMENTS
    assert known.latest() == (1.0, module.RATE_OVER_S)


# --- States -------------------------------------------------------------------------------------


def test_states(tmp_path: Path, clock: Clock) -> None:
    alive = Alive()
    follower = following(tmp_path, alive)
    clock.s += 101
    keep(tmp_path, live(0, 11, status="ended"))
    keep(tmp_path, live(1, 12, status="interrupted"))
    keep(tmp_path, live(2, 13))
    keep(tmp_path, live(3, 14))
    alive.add(13)
    follower.look()
    assert states(follower, clock) == ["ended", "interrupted", "running", "running"]
    # The first was seen here; whether the other runs elsewhere cannot be known yet.
    alive.clear()
    follower.look()
    assert states(follower, clock) == ["ended", "interrupted", "died", "running"]
    clock.s += 30
    assert states(follower, clock)[3] == "silent"
    # What is silent may come back.
    clock.s += 60
    keep(tmp_path, live(3, 14, after_s=190))
    follower.look()
    assert states(follower, clock)[3] == "running"


def test_one_killed_long_ago_is_silent_at_once(tmp_path: Path, clock: Clock) -> None:
    keep(tmp_path, live())
    clock.s += 86_400
    follower = following(tmp_path)
    follower.look()
    (known,) = follower.all()
    assert known.seen_ago_s(clock.monotonic()) == 86_300
    assert states(follower, clock) == ["silent"]


def test_long_runs_write_rarely(tmp_path: Path, clock: Clock) -> None:
    """Each 1 % of the run: after 10 hours, six minutes without a word mean nothing."""
    keep(tmp_path, live(after_s=36_000))
    clock.s += 36_000 + 1000
    follower = following(tmp_path)
    follower.look()
    assert states(follower, clock) == ["running"]
    clock.s += 100
    assert states(follower, clock) == ["silent"]


def test_another_machines_clock(tmp_path: Path, clock: Clock) -> None:
    """Its reports are as new as they are seen to change, however late its clock is."""
    follower = following(tmp_path)
    for after_s in (100, 110):
        clock.s = STARTED_AT + after_s + 7200
        keep(tmp_path, live(after_s=after_s))
        follower.look()
    (known,) = follower.all()
    assert known.seen_ago_s(clock.monotonic()) <= 10
    assert states(follower, clock) == ["running"]
    clock.s = STARTED_AT - 7200  # and in the future, it is not seen before it was
    other = following(tmp_path)
    other.look()
    assert other.all()[0].seen_ago_s(clock.monotonic()) == 0


# --- Files --------------------------------------------------------------------------------------


def test_a_file_is_read_when_it_has_changed(tmp_path: Path, clock: Clock) -> None:
    follower = following(tmp_path / "later")
    assert follower.look() == [] and follower.all() == []
    keep(tmp_path / "later", live(calls=3))
    (change,) = follower.look()
    assert (change.report.summary.graph_calls, change.before) == (3, None)
    assert follower.look() == []
    keep(tmp_path / "later", live(calls=5))
    (again,) = follower.look()
    assert again.of is change.of and again.before is change.report
    assert again.report.summary.graph_calls == 5


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[1]", b'{"schema_version": 1}'])
def test_a_damaged_file_leaves_what_was_known(tmp_path: Path, clock: Clock, content: bytes) -> None:
    follower = following(tmp_path)
    path = keep(tmp_path, live(calls=3))
    follower.look()
    path.write_bytes(content)
    assert follower.look() == []
    (known,) = follower.all()
    assert known.problem and str(tmp_path) not in known.problem and "\n" not in known.problem
    assert known.report is not None and known.report.summary.graph_calls == 3
    keep(tmp_path, live(calls=4))
    (change,) = follower.look()
    assert known.problem is None and change.of is known


def test_what_was_never_readable(tmp_path: Path, clock: Clock) -> None:
    path_of(tmp_path, live()).write_text("nonsense")
    follower = following(tmp_path)
    assert follower.look() == []
    assert states(follower, clock) == ["unreadable"]
    assert follower.current(clock.monotonic()) == follower.all()


def test_a_report_that_vanishes_and_comes_back(tmp_path: Path, clock: Clock) -> None:
    follower = following(tmp_path)
    path = keep(tmp_path, live(calls=3))
    follower.look()
    path.unlink()
    clock.s += 30
    assert follower.look() == []
    (known,) = follower.all()
    assert known.removed_s is not None and known.report is not None
    keep(tmp_path, live(calls=4))
    (change,) = follower.look()
    assert change.of is known and known.removed_s is None
    path.unlink()
    follower.look()
    clock.s += module.REMOVED_FOR_S + 1
    follower.look()
    assert follower.all() == []


def test_the_folder_vanishes(tmp_path: Path, clock: Clock) -> None:
    folder = tmp_path / "run"
    path = keep(folder, live())
    follower = Follower(lambda: find_reports(folder), lambda run: False)
    follower.look()
    path.unlink()
    folder.rmdir()
    assert follower.look() == []
    assert follower.problem == f"{folder}: cannot be read: No such file or directory"
    keep(folder, live(calls=9))
    follower.look()
    assert follower.problem is None
    assert follower.all()[0].report.summary.graph_calls == 9


def test_another_program_with_the_same_number(tmp_path: Path, clock: Clock) -> None:
    """In containers, each process is number 1."""
    follower = following(tmp_path)
    keep(tmp_path, live(calls=300))
    follower.look()
    (before,) = follower.all()
    keep(tmp_path, live(calls=400, started_at=STARTED_AT + 50))
    (change,) = follower.look()
    assert change.before is None and change.of is not before
    assert follower.all() == [change.of] and len(change.of.moments) == 1


def test_the_latest_are_read_first_and_the_screen_does_not_wait(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes as long as one look has patience for."""

    def slow(path: Path) -> LiveReport:
        clock.s += module.PATIENCE_S + 0.01
        return read_live(path)

    monkeypatch.setattr(module, "read_live", slow)
    for rank in range(3):
        os.utime(keep(tmp_path, live(rank, 20 + rank)), ns=(0, (10 + rank) * 10**9))
    follower = following(tmp_path)
    ranks = []
    for left in (2, 1, 0):
        ranks += [change.report.run.rank for change in follower.look()]
        assert follower.waiting == left
    assert ranks == [2, 1, 0]


def test_earlier_runs_are_left_out(tmp_path: Path, clock: Clock) -> None:
    clock.s += 3700
    keep(tmp_path, live(0, 11, status="ended", after_s=100))
    keep(tmp_path, live(0, 12, status="running", after_s=200))  # it was killed
    keep(tmp_path, live(0, 13, started_at=STARTED_AT + 3500, after_s=200))
    keep(tmp_path, live(1, 14, started_at=STARTED_AT + 3510, after_s=5, status="interrupted"))
    follower = following(tmp_path)
    follower.look()
    pids = [each.report.run.pid for each in follower.current(clock.monotonic())]
    assert pids == [13, 14]
    # When nothing runs any more, the last run.
    for rank, pid in ((0, 13), (1, 14)):
        keep(tmp_path, live(rank, pid, started_at=STARTED_AT + 3500, after_s=210, status="ended"))
    follower.look()
    assert [each.report.run.pid for each in follower.current(clock.monotonic())] == [13, 14]


# --- What is read of a file ---------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted((DATA / "reports").glob("*.json")), ids=lambda p: p.stem)
def test_the_same_as_the_whole_report(path: Path) -> None:
    whole, read = read_report(path), read_live(path)
    for field in fields(LiveReport):
        assert getattr(read, field.name) == getattr(whole, field.name)


def test_the_same_of_one_that_is_kept_current(tmp_path: Path) -> None:
    path = keep(tmp_path, live(compiling=[compiling(STARTED_AT + 99, why="x: 64 → 48")]))
    test_the_same_as_the_whole_report(path)
    assert read_live(path).compiling == read_report(path).compiling != []


def test_names_that_are_no_utf8(tmp_path: Path) -> None:
    report = sample()
    report.run.command = "train\udcff.py"
    path = keep(tmp_path, report)
    assert read_live(path).run.command == "train\udcff.py"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"schema_version": 2}', "schema_version is 2"),
        ('{"schema_version": 1, "run": 3}', "run: expected object, got int"),
        ("{" * 100_000, "not JSON"),
        ('{"run": {}', "not JSON"),
    ],
)
def test_what_is_no_report(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "report.rank0.pid1.json"
    path.write_text(text)
    with pytest.raises(ReportError, match=said) as error:
        read_live(path)
    assert str(error.value).startswith(f"{path}: ") and "\n" not in str(error.value)


def test_every_section_it_has_is_the_reports() -> None:
    theirs = {field.name for field in fields(Report)}
    assert {field.name for field in fields(LiveReport)} <= theirs
