"""Rows appended to a CSV file that other threads and processes append to at the same time."""

import csv
import enum
import io
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from instrumented_backend.records.escapes import to_bytes
from instrumented_backend.records.whole_file import sweep, write_whole, written_part

_ATTEMPTS = 10
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def cell(value: Any) -> str:
    """``None`` → empty, ``0.5`` → ``"0.500000"``, an enum's member → its name, else ``str``."""
    if value is None:
        return ""
    if isinstance(value, enum.Enum):
        return value.name
    return f"{value:.6f}" if isinstance(value, float) else str(value)


def append_row(path: str, header: Iterable[str], row: Iterable[Any]) -> None:
    """Append one line; a file that isn't there starts with ``header``. Raises OSError.

    Each line is one write at the end of the file, so that lines of different writers never mix
    (on local file systems; NFS promises less). A new file appears with its header already in it.
    A symbolic link is refused: it may be another user's, to a file of this one's. A pipe that
    nobody reads is not waited for.
    """
    line = _line(map(cell, row))
    for _ in range(_ATTEMPTS):
        try:
            file = os.open(path, _APPEND)
        except FileNotFoundError:
            _create(path, _line(header))
            continue
        try:
            _write(file, line, path)
        finally:
            os.close(file)
        return
    raise FileNotFoundError(f"{path}: removed as often as it was created")


def start(path: str, header: Iterable[str]) -> None:
    """Leave the header alone in the file, whatever it held. Raises OSError."""
    write_whole(Path(path), _line(header))


def _create(path: str, header: bytes) -> None:
    folder = Path(path).parent
    folder.mkdir(parents=True, exist_ok=True)
    sweep(folder)
    with written_part(Path(path), header) as part:
        try:
            os.link(part, path)  # unlike a rename, never over what another writer has just made
        except FileExistsError:
            return
        except OSError:
            _create_without_links(path, header)


def _create_without_links(path: str, header: bytes) -> None:
    """Another writer's first row may come before the header."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except FileExistsError:
        return
    try:
        _write(file, header, path)
    finally:
        os.close(file)


def _write(file: int, content: bytes, path: str) -> None:
    written = os.write(file, content)
    if written != len(content):
        end = os.fstat(file).st_size
        if os.lseek(file, 0, os.SEEK_CUR) == end:  # nobody has written behind it
            os.ftruncate(file, end - written)
        raise OSError(f"{path}: a line did not fit: no space left")


def _line(cells: Iterable[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow(cells)  # it quotes what this has
    line = text.getvalue().removesuffix("\r\n") + "\n"
    # A path may hold bytes that are not UTF-8; they are written back as they were.
    return to_bytes(line)
