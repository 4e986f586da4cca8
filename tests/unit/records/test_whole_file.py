"""Files appear whole or not at all: full disks, planted links, and writers that are killed."""

import os
import resource
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from paths import REPOSITORY, SUPPORT
from sample_report import sample

from instrumented_backend.records.csv_rows import append_row
from instrumented_backend.records.side_files import save, side_file
from instrumented_backend.records.whole_file import sweep, write_whole, written_part
from instrumented_backend.settings import of_process
from instrumented_backend.views import deliver
from instrumented_backend.views.files import write_files

LEFT = f".t.csv.{'0a' * 16}.part"


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """As on a disk with no more room: what is longer is cut, and the rest is an OSError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def test_text_and_bytes(tmp_path: Path) -> None:
    write_whole(tmp_path / "new" / "a", "ä\n")
    write_whole(tmp_path / "new" / "b", b"\xff" * 5_000_000, mode=0o600)
    assert (tmp_path / "new" / "a").read_bytes() == b"\xc3\xa4\n"
    assert (tmp_path / "new" / "b").read_bytes() == b"\xff" * 5_000_000
    assert (tmp_path / "new" / "b").stat().st_mode & 0o777 == 0o600
    assert names(tmp_path / "new") == ["a", "b"]


def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    with files_up_to(4096):
        for name in ("old", "new"):
            with pytest.raises(OSError, match="File too large"):
                write_whole(tmp_path / name, "x" * 5000)
    assert names(tmp_path) == ["old"]
    assert (tmp_path / "old").read_text() == "old"


def test_a_report_on_a_full_disk(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What fits is there, and what is not is named."""
    report = sample()
    report.kernels *= 1000
    with files_up_to(8192):
        deliver.deliver(report, replace(of_process(), dir=tmp_path, tables=()))
    lost = ["report.rank0.pid17.json", "kernels.rank0.pid17.csv"]
    assert caplog.messages == [
        f"lost: not written in {tmp_path}: {', '.join(lost)}: File too large"
    ]
    assert report.notes[-1] == caplog.messages[0]
    written = names(tmp_path)
    assert "graphs.rank0.pid17.csv" in written and not set(lost) & set(written)
    assert all((tmp_path / name).read_text().endswith("\n") for name in written)


def test_a_row_on_a_full_disk(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    append_row(str(path), ["a"], ["row"])
    with files_up_to(10):
        for _ in range(2):
            with pytest.raises(OSError, match=r"did not fit|File too large"):
                append_row(str(path), ["a"], ["x" * 100])
        append_row(str(path), ["a"], ["mor"])
    assert path.read_text() == "a\nrow\nmor\n"


def test_planted_links_are_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("theirs")
    folder = tmp_path / "reports"
    folder.mkdir()
    write_files(sample(), folder)
    files = names(folder)
    for name in files:
        (folder / name).unlink()
        (folder / name).symlink_to(target)
    assert write_files(sample(), folder) == {}
    assert names(folder) == files
    assert not any((folder / name).is_symlink() for name in files)
    (folder / "t.csv").symlink_to(target)
    with pytest.raises(OSError, match="symbolic link"):
        append_row(str(folder / "t.csv"), ["a"], [1])
    assert target.read_text() == "theirs"


def test_what_is_swept(tmp_path: Path) -> None:
    """What a dead process began: nobody has it locked. Nothing that is not named like ours."""
    others = ["data.part", ".t.csv.part", f"t.csv.{'0a' * 16}.part", ".t.csv.0a.part", "t.csv"]
    for name in [*others, LEFT]:
        (tmp_path / name).write_text(name)
    (tmp_path / f".link.{'0b' * 16}.part").symlink_to(tmp_path / "t.csv")
    os.mkfifo(tmp_path / f".fifo.{'0c' * 16}.part")
    with written_part(tmp_path / "u.csv", b"alive") as part:
        sweep(tmp_path)
        assert part.read_bytes() == b"alive"
        assert set(others) <= set(names(tmp_path)) and LEFT not in names(tmp_path)
    sweep(tmp_path / "nowhere")
    assert (tmp_path / "t.csv").read_text() == "t.csv"


def test_who_sweeps(tmp_path: Path) -> None:
    module = str(tmp_path / "cache" / "ab" / "cab.py")
    for folder in (tmp_path / "reports", tmp_path / "rows", side_file(module, "kernels").parent):
        folder.mkdir(parents=True)
        (folder / LEFT).touch()
    write_files(sample(), tmp_path / "reports")
    append_row(str(tmp_path / "rows" / "t.csv"), ["a"], [1])
    save(side_file(module, "kernels"), {})
    assert list(tmp_path.rglob("*.part")) == []


def test_a_file_that_is_swept_as_it_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its creation and its lock it looks like a dead process's."""
    create, swept = os.open, []

    def swept_at_once(path: Path, flags: int, mode: int = 0o777) -> int:
        file = create(path, flags, mode)
        if flags & os.O_EXCL and len(swept) < 3:
            swept.append(path)
            Path(path).unlink()
        return file

    monkeypatch.setattr(os, "open", swept_at_once)
    write_whole(tmp_path / "a", "whole")
    assert len(swept) == 3 and names(tmp_path) == ["a"]


KILLED = """
    import os, random, signal, sys, time
    from pathlib import Path
    from sample_report import sample
    from instrumented_backend.views.files import write_files
    folder, moments = Path(sys.argv[1]), int(sys.argv[2])
    report = sample()
    report.kernels *= 300
    report.graphs *= 300
    write_files(report, folder)
    whole = {path.name: path.read_bytes() for path in folder.iterdir()}
    draw = random.Random(7)
    for moment in range(moments):
        for name in list(whole)[moment % 3 :: 3]:
            (folder / name).unlink()
        writer = os.fork()
        if writer == 0:
            while True:
                write_files(report, folder)
        time.sleep(draw.random() / 20)
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
        for path in folder.glob("[!.]*"):
            assert path.read_bytes() == whole[path.name], path
        write_files(report, folder)
        assert sorted(os.listdir(folder)) == sorted(whole)
    print(moments)
"""


@pytest.mark.parametrize("moments", [15, pytest.param(300, marks=pytest.mark.full)])
def test_writers_that_are_killed(tmp_path: Path, moments: int) -> None:
    """All tables, at random moments: each file under its name is whole, and no part stays."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path), str(moments)],
        env={**os.environ, "PYTHONPATH": f"{SUPPORT}:{REPOSITORY}"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert (done.returncode, done.stdout) == (0, f"{moments}\n"), done.stderr
