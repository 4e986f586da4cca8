"""Where native libraries are kept: a folder that belongs to the user, where nobody else can write.

A library runs in the program's process. One that another user could have put there, or could change
while it is looked at, is not loaded: each is opened once, and what is checked is what is loaded.
"""

import contextlib
import hashlib
import itertools
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from filelock import FileLock, Timeout

from instrumented_backend.observe.descriptors import close_own, identity_of
from instrumented_backend.observe.native.compiler import NativeError
from instrumented_backend.records.whole_file import sweep, write_whole

T = TypeVar("T")
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH

# The dynamic linker takes a second library of the same path for the first: no path is used twice.
_loads = itertools.count()


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/instrumented_backend``, or ``~/.cache/instrumented_backend``.

    Raises OSError where nobody knows a home folder.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # relative ones are to be ignored, by the XDG specification
        base = os.path.join(os.path.expanduser("~"), ".cache")
    if not os.path.isabs(base):
        raise FileNotFoundError(f"no home folder: {base}")
    return Path(base) / "instrumented_backend"


def load(
    name: str,
    build: Callable[[Path], None],
    open_: Callable[[str], T],
    folder: Path | None,
    remark: Callable[[str], None],
    patience_s: float,
) -> T:
    """What ``open_(path)`` returns, of the library kept as ``name``, built where there is none.

    Where none can be kept it is built for this process alone, and ``remark`` is told why. Another
    process that is building it is waited for, up to ``patience_s``. Raises `NativeError`.
    """
    with contextlib.ExitStack() as stack:
        place = None
        try:
            place = stack.enter_context(_own_folder(folder))
            library = stack.enter_context(_intact(place, name))
            if library is None:
                stack.enter_context(FileLock(place / f"{name}.lock", patience_s, mode=0o600))
                sweep(place)
                library = stack.enter_context(_intact(place, name))
        except Timeout:
            place, library = None, None
            remark(_alone(name, f"another process has been building it for {patience_s:g} s"))
        except OSError as error:
            place, library = None, None
            remark(_alone(name, str(error)))
        if library is None:
            library = stack.enter_context(_built(name, build))
            if place is not None:
                try:
                    _keep(place, name, library)
                    # The file that whoever asks next gets: two of them would be two libraries.
                    library = stack.enter_context(_intact(place, name)) or library
                except OSError as error:
                    remark(_alone(name, error.strerror or str(error)))
        return open_("/proc/self/fd/" + "./" * next(_loads) + str(library))


def _alone(name: str, why: str) -> str:
    part = name.partition("-")[0].replace("_", " ")
    return f"the native part {part!r} is built for this process alone and not kept: {why}"


@contextmanager
def _own_folder(folder: Path | None) -> Iterator[Path]:
    """As a path that stays the same folder, whatever is put in its place. Raises OSError."""
    folder = folder or cache_folder()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    identity = identity_of(number)
    try:
        problem = _problem(os.fstat(number))
        if problem is not None:
            raise OSError(f"{folder} {problem}")
        yield Path(f"/proc/self/fd/{number}")
    finally:
        close_own(number, identity)


def _problem(status: os.stat_result) -> str | None:
    if status.st_uid != os.geteuid():
        return f"belongs to another user ({status.st_uid})"
    if status.st_mode & _WRITABLE_BY_OTHERS:
        return f"can be written by others (mode {stat.S_IMODE(status.st_mode):o})"
    return None


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """A plain file of our own. Raises OSError."""
    number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(number)
        if not stat.S_ISREG(status.st_mode) or _problem(status) is not None:
            raise OSError(f"{path}: no plain file that only this user can write")
        yield number
    finally:
        os.close(number)


@contextmanager
def _intact(place: Path, name: str) -> Iterator[int | None]:
    """The library, open: half of one would kill the process, so its digest is kept beside it."""
    with contextlib.ExitStack() as stack:
        library = None
        with contextlib.suppress(OSError):
            digest = stack.enter_context(_opened(place / f"{name}.sha256"))
            found = stack.enter_context(_opened(place / f"{name}.so"))
            if hashlib.sha256(_content(found)).hexdigest().encode() == _content(digest):
                library = found
        yield library


def _content(number: int) -> bytes:
    return os.pread(number, os.fstat(number).st_size, 0)


@contextmanager
def _built(name: str, build: Callable[[Path], None]) -> Iterator[int]:
    """In a folder that is there for this alone; open. Raises `NativeError`."""
    try:
        # Not TemporaryDirectory, which a forked child would remove at its own exit.
        folder = Path(tempfile.mkdtemp(prefix="instrumented_backend-"))
    except OSError as error:
        raise NativeError(f"no folder to build it in: {error}") from None
    try:
        build(folder / f"{name}.so")
        number = os.open(folder / f"{name}.so", os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield number
        finally:
            os.close(number)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _keep(place: Path, name: str, library: int) -> None:
    """Raises OSError."""
    content = _content(library)
    write_whole(place / f"{name}.so", content, mode=0o600)
    write_whole(place / f"{name}.sha256", hashlib.sha256(content).hexdigest(), mode=0o600)
