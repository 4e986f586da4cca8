"""``top`` in a real terminal, in pipes, and with what is not there."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_reports import STARTED_AT, TO_COME, compiling, keep, live, path_of
from programs import TOOL
from tmux import MISSING, Tmux, terminal
from waiting import wait_until

from instrumented_backend.commands import processes, targets
from instrumented_backend.records import ReportError

in_a_terminal = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
WHY = "size of x in dimension 1: 64 → 48"
ENDS = ("q", "SIGTERM", "SIGHUP")
TITLE = "instrumented-backend top"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    keep(tmp_path / "run", live(0, 11))
    return tmp_path / "run"


@pytest.fixture
def window(tmp_path: Path) -> Iterator[Tmux]:
    with terminal(tmp_path) as tmux:
        yield tmux


def top(*arguments: object) -> list[str]:
    return [*TOOL, "top", *map(str, arguments)]


def child_of(pid: int) -> int:
    """The one process that it has started."""
    (found,) = processes.with_descendants([pid]) - {pid}
    return found


# --- In a terminal ------------------------------------------------------------------------------


@in_a_terminal
def test_what_happens_is_seen_at_any_size(window: Tmux, folder: Path) -> None:
    window.run(*top(folder))
    window.wait_for("silent")
    keep(folder, live(0, 11, after_s=105, compiling=[compiling(live().run.seen_at, why=WHY)]))
    assert window.wait_for(f"again: {WHY}").splitlines()[2] == f"  again: {WHY}"
    window.resize(60, 12)
    # The terminal moves what was there, before it is drawn anew.
    wait_until(lambda: len(window.lines()) == 12 and window.lines()[0].startswith(TITLE))
    wait_until(lambda: window.lines()[-1] == "q quits")
    window.resize(110, 40)
    wait_until(lambda: len(window.lines()) == 40 and window.lines()[-1] == "q quits")
    # A report that vanishes, is damaged, and is another program's.
    path = path_of(folder, live(0, 11))
    path.unlink()
    window.wait_for("its report was removed")
    path.write_text("{")
    window.wait_for("cannot be read now: not JSON")
    keep(folder, live(0, 11, started_at=STARTED_AT + 500, recompiles=0))
    window.wait_without("cannot be read now")
    for rank in range(1, 64):
        keep(folder, live(rank, 11 + rank, started_at=STARTED_AT + 500))
    window.wait_for("64 processes: ")
    window.keys("Down")
    window.wait_for("rank 1, pid 12: ")
    window.keys("k", "NPage", "x", "q")  # a key that means nothing does nothing
    wait_until(lambda: window.modes() == "1 0 bash")


@in_a_terminal
@pytest.mark.parametrize("end", ["C-c", *(pytest.param(e, marks=pytest.mark.full) for e in ENDS)])
def test_the_terminal_is_left_as_it_was(
    window: Tmux, folder: Path, tmp_path: Path, end: str
) -> None:
    window.run("echo", "a line before")
    before = window.settings(tmp_path / "before")
    window.run("sh", "-c", f"echo $$ > {tmp_path}/pid; exec {' '.join(top(folder))}")
    window.wait_for(TITLE)
    assert window.modes().startswith("0 1 ")
    if end.startswith("SIG"):
        os.kill(int((tmp_path / "pid").read_text()), getattr(signal, end))
    else:
        window.keys(end)
    wait_until(lambda: window.modes() == "1 0 bash")
    assert window.settings(tmp_path / "after") == before
    assert "a line before" in window.screen() and "Traceback" not in window.screen()


@in_a_terminal
def test_it_can_be_put_aside(window: Tmux, folder: Path, tmp_path: Path) -> None:
    before = window.settings(tmp_path / "before")
    window.run(*top(folder))
    window.wait_for(TITLE)
    window.keys("C-z")
    wait_until(lambda: window.modes() == "1 0 bash")
    assert window.settings(tmp_path / "aside") == before
    window.run("fg")
    window.wait_for(TITLE)
    assert window.modes().startswith("0 1 ")
    window.keys("q")
    wait_until(lambda: window.modes() == "1 0 bash")
    assert window.settings(tmp_path / "after") == before


# --- Without one --------------------------------------------------------------------------------


def run(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(top(*arguments), capture_output=True, text=True, **options)


def test_lines_and_an_end_of_their_own(tmp_path: Path) -> None:
    """It waits for the folder; and no name is too odd for its pipe."""
    folder = tmp_path / "run"
    process = subprocess.Popen(
        top(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith(f"{folder}: no report yet")
    under_way = [compiling(TO_COME + 99, why=WHY)]
    keep(folder, live(0, os.getpid(), started_at=TO_COME, compiling=under_way))
    assert "running, for 1 min 40 s" in process.stdout.readline()
    assert "compiling forward" in process.stdout.readline()
    keep(folder, live(0, os.getpid(), started_at=TO_COME, after_s=120, status="ended"))
    out, err = process.communicate()
    assert (process.returncode, err) == (0, "")
    assert out.splitlines()[-1].endswith("ended, after 2 min: train.py --epochs 3")


def test_a_reader_that_has_enough(folder: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(top(folder), stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


def test_neither_torch_nor_rich(folder: Path) -> None:
    """It starts at once, and lines need no terminal's library."""
    keep(folder, live(0, 11, status="ended"))
    program = f"""
import sys
from instrumented_backend.commands import cli
try:
    cli.main(["top", {str(folder)!r}], standalone_mode=False)
finally:
    print([name for name in ("torch", "numpy", "rich") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        (str(1 << 22), "no such process, and no such folder"),
        ("s3://bucket/run", "top watches folders of this machine"),
    ],
)
def test_what_is_not_there(argument: str, said: str) -> None:
    with pytest.raises(targets.NoTarget, match=said):
        targets.target(argument)


def test_a_mistake_is_one_line() -> None:
    done = run(1 << 22)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)


# --- What is watched ----------------------------------------------------------------------------


def test_the_default_is_the_environments(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert targets.target(None).paths() == [path_of(Path("."), live(0, 11))]
    monkeypatch.setenv("INSTRUMENTED_DIR", str(folder.parent))
    assert targets.target(None).paths() == []


def test_one_report(folder: Path) -> None:
    path = path_of(folder, live(0, 11))
    assert targets.target(str(path)).paths() == [path]


def test_a_process_and_what_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports of others in the same folder are none of theirs; a relative folder is the child's."""
    parent = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    process = subprocess.Popen(
        [sys.executable, "-c", parent],
        stdin=subprocess.PIPE,
        cwd=tmp_path,
        env={**os.environ, "INSTRUMENTED_DIR": "run"},
    )
    try:
        wait_until(lambda: len(processes.with_descendants([process.pid])) == 2)
        child = child_of(process.pid)
        monkeypatch.setattr(targets, "_BETWEEN_S", 0.0)
        found = targets.target(str(process.pid))
        assert found.name == f"process {process.pid}"
        ours = [keep(tmp_path / "run", live(0, pid)) for pid in sorted((process.pid, child))]
        keep(tmp_path / "run", live(0, os.getpid()))
        assert found.paths() == ours
        assert processes.is_alive(live(0, child, started_at=TO_COME).run)
        # It was not there when that report began: another process had its number.
        assert not processes.is_alive(live(0, child).run)
    finally:
        process.communicate()
    assert found.paths() == ours  # what they left
    assert not processes.is_alive(live(0, child, started_at=TO_COME).run)


def is_over(found: targets.Target) -> bool:
    """After another look."""
    with contextlib.suppress(ReportError):
        found.paths()
    return found.is_over()


def test_what_a_process_has_started_outlives_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ranks whose launcher was killed; a report that comes later is theirs."""
    parent = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    process = subprocess.Popen(
        [sys.executable, "-c", parent],
        stdin=subprocess.PIPE,
        env={**os.environ, "INSTRUMENTED_DIR": str(tmp_path / "run")},
    )
    try:
        wait_until(lambda: len(processes.with_descendants([process.pid])) == 2)
        child = child_of(process.pid)
        monkeypatch.setattr(targets, "_BETWEEN_S", 0.0)
        found = targets.target(str(process.pid))
        process.kill()
        process.wait()
        assert not is_over(found)
        path = keep(tmp_path / "run", live(0, child))
        assert found.paths() == [path]
        path.unlink()
        assert not is_over(found)
    finally:
        process.kill()
        process.communicate()  # the child's input ends, too
    wait_until(lambda: is_over(found))
    with pytest.raises(ReportError, match="ended, without a report"):
        found.paths()
    keep(tmp_path / "run", live(0, child))
    assert not is_over(found) and found.paths() == [path]


def test_lines_end_with_a_process_that_leaves_no_report(tmp_path: Path) -> None:
    watched = subprocess.Popen(
        [sys.executable, "-c", "input()"],
        stdin=subprocess.PIPE,
        env={**os.environ, "INSTRUMENTED_DIR": str(tmp_path / "run")},
    )
    process = subprocess.Popen(top(watched.pid), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().startswith(f"process {watched.pid}: no report yet")
    watched.communicate()
    out, _ = process.communicate()
    assert (process.returncode, out) == (0, f"process {watched.pid}: ended, without a report\n")


def test_a_process_that_leaves_no_report() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        wait_until(lambda: processes.find(process.pid) is not None)
        with pytest.raises(targets.NoTarget, match="has INSTRUMENTED_DIR"):
            targets.target(str(process.pid))
    finally:
        process.communicate()
