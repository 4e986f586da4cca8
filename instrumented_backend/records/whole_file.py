"""Files that a reader sees whole or not at all."""

import contextlib
import fcntl
import os
import re
import stat
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from instrumented_backend.records.remote import AnyPath, RemotePath

_ATTEMPTS = 10
_OPEN_FILE = re.compile(r"/dev/(fd/\d+|stdout|stderr)|/proc/(self|\d+)/fd/\d+")
_PART = re.compile(r"\..+\.[0-9a-f]{32}\.part")


def write_whole(path: AnyPath, content: str | bytes, mode: int = 0o666) -> None:
    """Write ``content``, text as UTF-8, whoever else writes the same file now. Raises OSError.

    A symbolic link of that name is replaced, and not followed. What is no file, such as /dev/null
    or /dev/stdout, is written into.
    """
    whole = content.encode() if isinstance(content, str) else content
    if isinstance(path, RemotePath):
        path.write_bytes(whole)
        return
    if _is_stream(path):
        path.write_bytes(whole)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_part(path, whole, mode) as part:
        os.replace(part, path)


def _is_stream(path: Path) -> bool:
    """A device, or a name of a file that is open; only root could have planted these."""
    if _OPEN_FILE.fullmatch(os.path.abspath(path)):
        return True
    try:
        return stat.S_ISCHR(os.lstat(path).st_mode)
    except OSError:
        return False


@contextmanager
def written_part(path: Path, content: bytes | Iterable[bytes], mode: int = 0o666) -> Iterator[Path]:
    """A new file beside ``path``, whole, to be given its name; gone afterwards.

    What is given in pieces is never in memory as a whole. The file is locked meanwhile: `sweep`
    takes one that is not for a dead process's. Raises OSError.
    """
    part, file = _new_part(path, mode)
    try:
        try:
            for piece in [content] if isinstance(content, bytes) else content:
                view = memoryview(piece)
                while view:
                    view = view[os.write(file, view) :]
            # Some file systems tell at a close only that the disk is full; the lock stays.
            os.close(os.dup(file))
            yield part
        finally:
            part.unlink(missing_ok=True)
    finally:
        os.close(file)


def _new_part(path: Path, mode: int) -> tuple[Path, int]:
    for _ in range(_ATTEMPTS):
        part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
        file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        if _lock(file) and os.fstat(file).st_nlink:
            return part, file
        os.close(file)  # it was swept before it was locked
    raise FileNotFoundError(f"{path}: swept away as often as it was begun")


def _lock(file: int) -> bool:
    """Whether nobody else has it. Not every file system knows locks; `sweep` finds out, too."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def sweep(folder: AnyPath) -> None:
    """Remove what processes that were killed had begun to write there."""
    if isinstance(folder, RemotePath):
        return  # it has nothing begun
    with contextlib.suppress(OSError):  # of the folder
        for name in os.listdir(folder):
            if _PART.fullmatch(name):
                with contextlib.suppress(OSError):  # of another user, gone, or being written
                    _sweep(folder / name)


def _sweep(part: Path) -> None:
    # For writing, too: over NFS, only who may write a file can lock it for himself alone.
    file = os.open(part, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        part.unlink()
    finally:
        os.close(file)
