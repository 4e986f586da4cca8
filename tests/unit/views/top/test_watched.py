"""The processes that are watched, in lines and on a screen."""

import io
import os
from pathlib import Path

import pytest
from live_reports import STARTED_AT, compiling, keep, live, path_of
from rich.console import Console
from sample_report import sample_on_gpu

from instrumented_backend.records import RunSection, find_reports
from instrumented_backend.records import follow as follow_module
from instrumented_backend.records.follow import Follower
from instrumented_backend.views.top import lines
from instrumented_backend.views.top import watched as watched_module
from instrumented_backend.views.top.screen import picture
from instrumented_backend.views.top.watched import Watched

WHY = "size of x in dimension 1: 64 → 48"


class Clock:
    """In the place of the module ``time``."""

    def __init__(self) -> None:
        self.s = STARTED_AT + 100

    def monotonic(self) -> float:
        return self.s

    def time(self) -> float:
        return self.s

    def strftime(self, _: str, at: float) -> str:
        """Seconds since the start."""
        return f"{at - STARTED_AT:g}"

    def localtime(self, at: float) -> float:
        return at


class Bench:
    """A folder with reports, and who looks at it."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.folder, self.clock = folder, clock
        self.alive: set[int] = set()
        follower = Follower(lambda: find_reports(folder), self._is_alive)
        self.watched = Watched("/runs", follower)

    def _is_alive(self, run: RunSection) -> bool:
        return run.pid in self.alive

    def lines(self, after_s: float = 0.0) -> list[str]:
        """What is new."""
        self.clock.s += after_s
        return [lines.event_line(event, self.watched) for event in self.watched.look()]

    def screen(self, width: int = 80, height: int = 24, **options: object) -> list[str]:
        self.watched.look()
        console = Console(width=width, height=height, record=True, file=io.StringIO())
        console.print(picture(self.watched, width, height, **options))
        return [line.rstrip() for line in console.export_text().splitlines()]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    clock = Clock()
    for module in (follow_module, watched_module, lines):
        monkeypatch.setattr(module, "time", clock)
    return Bench(tmp_path, clock)


def ranks(bench: Bench, number: int, **what: object) -> None:
    for rank in range(number):
        keep(bench.folder, live(rank, 100 + rank, **what))


# --- Lines --------------------------------------------------------------------------------------


def test_a_program_from_its_start_to_its_end(bench: Bench) -> None:
    assert bench.lines() == []
    keep(bench.folder, live(recompiles=0))
    assert bench.lines() == ["100 running, for 1 min 40 s: train.py --epochs 3"]
    assert bench.lines(2) == []
    keep(bench.folder, live(after_s=103, recompiles=0, compiling=[compiling(STARTED_AT + 102)]))
    assert bench.lines(1) == ["102 compiling forward (.../me/model.py:12)"]
    status = lines.status_line(bench.watched)
    assert status.endswith(" · compiling forward (.../me/model.py:12) for 1 s")
    keep(bench.folder, live(after_s=110, status="ended", recompiles=0))
    assert not bench.watched.all_have_ended()
    assert bench.lines(5)[-1] == "110 ended, after 1 min 50 s: train.py --epochs 3"
    assert bench.watched.all_have_ended()


def test_what_happens_to_ranks_at_once_is_one_line(bench: Bench) -> None:
    ranks(bench, 4)
    assert bench.lines() == ["100 all: running, for 1 min 40 s: train.py --epochs 3"]
    ranks(bench, 3, after_s=103, compiling=[compiling(STARTED_AT + 102, why=WHY)])
    assert bench.lines(3) == [f"102 ranks 0-2: compiling forward (.../me/model.py:12) again: {WHY}"]
    status = lines.status_line(bench.watched)
    assert status.startswith("103 4 processes: 4 running · 0.0 graph calls/s · ")
    assert status.endswith("compiling forward (.../me/model.py:12) for 1 s (ranks 0-2)")


def test_of_processes_that_share_a_rank(bench: Bench) -> None:
    """As workers do that are no ranks."""
    keep(bench.folder, live(0, 11))
    report = live(0, 12, compiling=[compiling(STARTED_AT + 99)])
    report.run.worker = "EngineCore_0"
    keep(bench.folder, report)
    assert bench.lines()[1] == "99 pid 12 EngineCore_0: compiling forward (.../me/model.py:12)"


def test_what_goes_wrong_is_said_once(bench: Bench) -> None:
    ranks(bench, 3)
    bench.alive.add(100)
    bench.lines()
    bench.alive.clear()
    assert bench.lines(1) == [
        "101 rank 0: died: its process is gone, and its report is of 1 s before"
    ]
    path_of(bench.folder, live(1, 101)).write_text("")
    assert len(bench.lines()) == 1 and bench.lines() == []
    path = path_of(bench.folder, live(2, 102))
    path.unlink()
    assert bench.lines() == [f"101 rank 2: its report was removed: {path}"]
    silent = bench.lines(40)
    assert silent == [
        "141 ranks 1-2: silent: no report for 41 s; it does nothing, died, or cannot write"
    ]
    assert bench.lines(5) == []


def test_text_of_others_moves_no_cursor(bench: Bench) -> None:
    report = live(compiling=[compiling(STARTED_AT + 99, "f\x1b[2J", "x\n\x1b]0;title\x07")])
    report.run.command = "a\x1b[31m\nb"
    keep(bench.folder, report)
    said = bench.lines()
    assert len(said) == 2 and not any("\x1b" in line or "\n" in line for line in said)
    shown = bench.screen()
    assert not any("\x1b" in line or "\x07" in line for line in shown)
    assert any("f\\x1b[2J" in line for line in shown)


def test_rich_markup_is_text(bench: Bench) -> None:
    report = live()
    report.run.command = "train.py [bold]x[/bold] [/]"
    keep(bench.folder, report)
    assert "train.py [bold]x[/bold] [/]" in bench.screen()


def test_the_log_is_bounded_and_gathers(bench: Bench) -> None:
    for rank in range(3):  # one after the other, as their reports come
        keep(bench.folder, live(rank, 100 + rank))
        bench.lines(1)
    (event,) = bench.watched.log
    assert [label.rank for label in event.who] == [0, 1, 2]
    for number in range(2 * watched_module.KEPT_EVENTS):
        bench.watched._keep(watched_module.Event(number * 100.0, f"event {number}"))
    assert len(bench.watched.log) == watched_module.KEPT_EVENTS


# --- The screen ---------------------------------------------------------------------------------


def test_a_screen(bench: Bench) -> None:
    keep(bench.folder, live(calls=100, after_s=100))
    bench.watched.look()
    bench.clock.s += 10
    under_way = compiling(STARTED_AT + 108, why=WHY)
    under_way.guard_file, under_way.guard_line = "/home/me/model.py", 15
    now = live(calls=420, after_s=110, compiling=[under_way])
    keep(bench.folder, now)
    bench.watched.look()
    bench.clock.s += 3
    shown = bench.screen()
    assert len(shown) == 24
    assert shown[0].split() == ["instrumented-backend", "top", "·", "/runs", "113"]
    assert shown[1] == "compiling for 5 s, since 108: forward (.../me/model.py:12)"
    assert shown[2] == f"  again: {WHY}, used at .../me/model.py:15"
    text = "\n".join(shown)
    assert "running for 1 min 53 s · figures of 3 s ago" in text
    assert "1 graph, 420 calls (+420 backward), 1 graph break, 1 recompile" in text
    assert "32.0 in the last 10 s · 4.8 since startup" in text  # 320 / 10 s; 420 / (110 - 22) s
    assert "recompiled forward (.../me/model.py:12) 1 time, 2.50 s" in text
    assert "used at .../me/model.py:15" in text
    bars = {
        line.split("█")[0].strip(): line.count("█") for line in shown if "█" in line and "%" in line
    }
    assert list(bars) == ["compiling", "Python", "startup"]  # 50, 29 and 20 %; the rest has none
    assert bars["compiling"] / bars["startup"] == pytest.approx(2.5, rel=0.1)


def test_a_gpu(bench: Bench) -> None:
    report = live()
    report.gpu = sample_on_gpu().gpu
    keep(bench.folder, report)
    said = "GPU: compiled code 60 %, eager 20 %, idle 20 % · launch-bound"
    assert said in "\n".join(bench.screen())
    assert said in lines.status_line(bench.watched)


def test_64_ranks(bench: Bench) -> None:
    ranks(bench, 64)
    bench.alive.update(range(100, 164))
    bench.screen()
    bench.alive.remove(117)
    shown = bench.screen()
    assert len(shown) == 24
    assert shown[1].startswith("64 processes: 63 running, 1 died (rank 17)")
    assert shown[3].startswith("1-9 of 64  state ")
    assert shown[4].startswith("rank 0 ") and shown[12].startswith("rank 8 ")
    later = bench.screen(chosen=17)
    assert any(line.startswith("rank 17 ") and "died" in line for line in later)
    assert any(line.startswith("rank 17, pid 117: died after 1 min 40 s") for line in later)
    last = bench.screen(chosen=63)
    assert any(line.startswith("rank 63 ") for line in last)


def test_ranks_side_by_side(bench: Bench) -> None:
    ranks(bench, 2, calls=100)
    bench.watched.look()
    keep(bench.folder, live(0, 100, calls=200, after_s=110))
    keep(
        bench.folder, live(1, 101, calls=150, after_s=110, compiling=[compiling(STARTED_AT + 106)])
    )
    bench.clock.s += 10
    shown = bench.screen(120)
    assert shown[1] == "2 processes: 2 running · 5.0 (rank 1) … 10.0 graph calls/s"
    assert shown[2] == "compiling for 4 s, since 106, rank 1: forward (.../me/model.py:12)"
    header, first, second = shown[4:7]
    assert header.split() == [
        *("state", "seen", "calls", "calls/s", "recompiles", "compiling", "in", "graphs", "now")
    ]
    assert first.split() == [
        "rank",
        "0",
        "running",
        "0",
        "s",
        "200",
        "10.0",
        "1",
        "50",
        "%",
        "1",
        "%",
    ]
    assert second.split()[5:7] == ["150", "5.0"] and second.endswith("forward 4 s")


@pytest.mark.parametrize("number", [0, 1, 3])
def test_any_size(bench: Bench, number: int) -> None:
    """Nothing raises, and nothing is longer or wider than the terminal."""
    ranks(bench, number, compiling=[compiling(STARTED_AT + 99, why=WHY)])
    bench.watched.look()
    for width in (1, 2, 9, 20, 37, 60, 200):
        for height in (1, 2, 3, 5, 10, 50):
            shown = bench.screen(width, height, chosen=2)
            assert len(shown) <= height, (width, height)
            assert all(len(line) <= width for line in shown), (width, height, shown)


def test_without_utf8(bench: Bench) -> None:
    ranks(bench, 2, compiling=[compiling(STARTED_AT + 99, "función", WHY)])
    assert all(line.isascii() for line in bench.screen(utf8=False))


def test_what_cannot_be_read(bench: Bench) -> None:
    ranks(bench, 2)
    bench.watched.look()
    path_of(bench.folder, live(1, 101)).write_text("{")
    never = bench.folder / "report.rank2.pid3.json"
    never.write_text("{")
    os.utime(never, (STARTED_AT, STARTED_AT))
    text = "\n".join(bench.screen(120, 30, chosen=1))
    assert "its file cannot be read" in text and "cannot be read now: not JSON" in text
    text = "\n".join(bench.screen(120, 30, chosen=2))
    assert "report.rank2.pid3.json" in text and "unreadable" in text


def test_nothing_yet(bench: Bench) -> None:
    assert "no report yet" in " ".join(bench.screen())
    bench.folder.rmdir()
    assert "cannot be read: No such file or directory" in " ".join(bench.screen())


def test_a_report_of_an_older_release(bench: Bench) -> None:
    """Without a ledger, or the moment at which it was made."""
    report = live(status="ended")
    report.run.seen_at = report.run.started = report.run.wall_s = None
    report.ledger.rows, report.ledger.wall_s = [], None
    keep(bench.folder, report)
    text = "\n".join(bench.screen())
    assert "ended" in text and "None" not in text
