"""Rows appended by many writers, and files that appear, vanish or refuse."""

import csv
import enum
import errno
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from instrumented_backend.records import csv_rows

WRITERS = 4
ROWS = 300
# Longer than a pipe's or a page's worth, so that a line written in pieces would show.
CELL = 9000


class Hint(enum.Enum):
    INNER = 3


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (0.5, "0.500000"),
        (1 / 3, "0.333333"),
        (float("inf"), "inf"),
        (7, "7"),
        (True, "True"),
        ("", ""),
        (["buf0", "buf1"], "['buf0', 'buf1']"),
        ({"x": 16}, "{'x': 16}"),
        (Hint.INNER, "INNER"),
    ],
)
def test_cells(value: Any, text: str) -> None:
    assert csv_rows.cell(value) == text


def test_quoting(tmp_path: Path) -> None:
    path = str(tmp_path / "t.csv")
    row = ["comma,", 'quote"', "two\nlines", "a\rb", "é", os.fsdecode(b"/no/utf8/\xff")]
    csv_rows.append_row(path, ["a", "b", "c", "d", "e", "f"], row)
    raw = Path(path).read_bytes()
    assert raw.startswith(b"a,b,c,d,e,f\n") and raw.endswith(b"/no/utf8/\xff\n")
    with open(path, newline="", encoding="utf-8", errors="surrogateescape") as file:
        assert list(csv.reader(file)) == [["a", "b", "c", "d", "e", "f"], row]


def _check(path: Path, writers: int) -> None:
    lines = path.read_text().split("\n")
    assert lines[0] == "writer,row,text" and lines[-1] == ""
    seen = []
    for line in lines[1:-1]:
        writer, row, text = line.split(",")
        assert text == writer * CELL
        seen.append((int(writer), int(row)))
    assert sorted(seen) == [(writer, row) for writer in range(writers) for row in range(ROWS)]
    # Each writer's own rows are in its order.
    for writer in range(writers):
        own = [row for who, row in seen if who == writer]
        assert own == sorted(own)
    assert os.listdir(path.parent) == [path.name]


def test_processes_never_mix_lines(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    source = f"""
import sys
from instrumented_backend.records.csv_rows import append_row
path, writer = sys.argv[1:]
sys.stdin.read(1)
for row in range({ROWS}):
    append_row(path, ["writer", "row", "text"], [writer, row, writer * {CELL}])
"""
    children = [
        subprocess.Popen(
            [sys.executable, "-c", source, str(path), str(writer)], stdin=subprocess.PIPE
        )
        for writer in range(WRITERS)
    ]
    for child in children:  # all imported and waiting, or nearly: the file's birth is contested
        assert child.stdin is not None
        child.stdin.close()
    assert [child.wait(timeout=600) for child in children] == [0] * WRITERS
    _check(path, WRITERS)


def test_threads_never_mix_lines(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    barrier = threading.Barrier(WRITERS)

    def write(writer: int) -> None:
        barrier.wait()
        for row in range(ROWS):
            cells = [writer, row, str(writer) * CELL]
            csv_rows.append_row(str(path), ["writer", "row", "text"], cells)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    _check(path, WRITERS)


def test_a_header_is_never_written_twice(tmp_path: Path) -> None:
    """Another writer's file turns up between our look and our creation."""
    path = tmp_path / "t.csv"
    path.write_text("a\nearlier\n")
    csv_rows._create(str(path), b"a\n")
    assert path.read_text() == "a\nearlier\n"
    assert os.listdir(tmp_path) == ["t.csv"]


def test_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    path = tmp_path / "t.csv"
    csv_rows.append_row(str(path), ["a"], [1])
    csv_rows._create(str(path), b"a\n")
    csv_rows.append_row(str(path), ["a"], [2])
    assert path.read_text() == "a\n1\n2\n"
    assert os.listdir(tmp_path) == ["t.csv"]


def test_a_removed_file_comes_back_with_its_header(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "t.csv"
    csv_rows.append_row(str(path), ["a"], [1])
    path.unlink()
    path.parent.rmdir()
    csv_rows.append_row(str(path), ["a"], [2])
    assert path.read_text() == "a\n2\n"


def test_start_leaves_the_header_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    csv_rows.append_row("t.csv", ["a"], [1])
    csv_rows.start("t.csv", ["a", "b"])
    assert Path("t.csv").read_text() == "a,b\n"
    assert os.listdir() == ["t.csv"]


def test_new_files_have_the_usual_rights(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    before = os.umask(0o027)
    try:
        csv_rows.append_row(str(path), ["a"], [1])
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_full_disk_and_a_folder_in_the_way(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left"):
        csv_rows.append_row("/dev/full", ["a"], [1])
    (tmp_path / "t.csv").mkdir()
    with pytest.raises(IsADirectoryError):
        csv_rows.append_row(str(tmp_path / "t.csv"), ["a"], [1])


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "table.csv"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="No such device or address"):
        csv_rows.append_row(str(pipe), ["a"], [1])
