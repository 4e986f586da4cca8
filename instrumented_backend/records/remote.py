"""Folders that are URLs: ``s3://bucket/run``, ``memory://run``, whatever fsspec knows.

`RemotePath` has those names of `pathlib.Path` that report files need; ``file://`` is a `Path`.
Object stores show a file whole or not at all.
"""

import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MARK = "://"


@dataclass(frozen=True)
class RemotePath:
    """A folder or a file; its methods raise OSError, whatever the file system raises."""

    url: str

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]

    def __truediv__(self, name: str) -> "RemotePath":
        return RemotePath(f"{self.url.rstrip('/')}/{name}")

    def mkdir(self, parents: bool = True, exist_ok: bool = True) -> None:
        """Nothing: it is made with the first file in it, by file systems that have folders."""

    def write_bytes(self, content: bytes) -> None:
        with _as_os_errors(self.url):
            system, path = _found(self.url)
            try:
                system.pipe_file(path, content)
            except FileNotFoundError:
                system.makedirs(path.rpartition("/")[0], exist_ok=True)
                system.pipe_file(path, content)

    def read_bytes(self, limit: int) -> bytes:
        """Of the file's beginning at most ``limit`` bytes."""
        with _as_os_errors(self.url):
            system, path = _found(self.url)
            with system.open(path, "rb") as file:
                content: bytes = file.read(limit)
            return content

    def unlink(self) -> None:
        with _as_os_errors(self.url):
            system, path = _found(self.url)
            system.rm_file(path)

    def names(self) -> list[str]:
        """Of what is in the folder."""
        with _as_os_errors(self.url):
            system, path = _found(self.url)
            listed = system.ls(path, detail=False)
            return [name.rstrip("/").rpartition("/")[2] for name in listed]

    def is_dir(self) -> bool:
        with _as_os_errors(self.url):
            system, path = _found(self.url)
            return bool(system.isdir(path))


AnyPath = Path | RemotePath


def path_of(text: str) -> AnyPath:
    """A path, or what the URL names; raises ValueError where that cannot be used."""
    if MARK not in text:
        return Path(text)
    parts = urllib.parse.urlsplit(text)
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise ValueError("a file on another host; write file:///folder")
        return Path(urllib.request.url2pathname(parts.path))
    try:
        _found(text)
    except ImportError as error:  # of the package that the protocol needs
        raise ValueError(" ".join(str(error).split())) from None
    except Exception as error:  # any: each file system has its own for a URL that it cannot use
        raise ValueError(f"{type(error).__name__}: {' '.join(str(error).split())}") from None
    return RemotePath(text)


def _found(url: str) -> tuple[Any, str]:
    """The file system, which fsspec keeps, and the path in it.

    Made when the settings are read: what needs a thread cannot start one when the process ends.
    """
    import fsspec.core

    system, path = fsspec.core.url_to_fs(url)
    return system, path


@contextmanager
def _as_os_errors(url: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.strerror:
            raise
        raise OSError(0, f"{type(error).__name__}: {_line(error)}", url) from error
    except Exception as error:  # any: each file system has its own
        raise OSError(0, f"{type(error).__name__}: {_line(error)}", url) from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
