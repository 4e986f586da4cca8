"""Texts that the page shows and the report does not hold: the program's files, generated code.

Each is read from where it was, or from under the working folder, if it is what the program ran.
"""

import hashlib
import linecache
import os
import re
from collections.abc import Iterator
from pathlib import Path

from instrumented_backend.records import FileRecord, KernelRecord, bounded

MAX_BYTES = 4 << 20  # of one file
MAX_READ = 64 << 20  # bytes of all files of a page: a report may name any, as often as it likes
MAX_COLOURED = 500_000  # characters of all sources of a page: each takes some microseconds
MAX_KERNEL = 20_000  # characters of one kernel
MAX_KERNELS = 1_500_000  # characters of all of them

NOT_HERE = "its text is not on this machine"
CHANGED_MEANWHILE = "it was changed while the program ran: its text would not be what ran"
CHANGED = "it has changed since the program ran: its text would not be what ran"
TOO_MUCH = "its text was not read: the files of this page are too large together"


class Reading:
    """Reads the files that are named in the reports of a page, each once, while there is room."""

    def __init__(self) -> None:
        self._left = MAX_READ
        self._colours = MAX_COLOURED
        self._texts: dict[str, str | None] = {}
        self._kernels: dict[str, dict[str, str]] = {}

    def text(self, path: str) -> str | None:
        """None where it cannot be read; raises `TooMuch`."""
        if path not in self._texts:
            self._texts[path] = self._read(path)
        return self._texts[path]

    def _read(self, path: str) -> str | None:
        try:
            # The kernel's own files, as in /proc, have no size.
            cost = min(os.stat(path).st_size or MAX_BYTES, MAX_BYTES)
            if cost > self._left:
                raise TooMuch
            self._left -= cost
            return bounded.read_text(Path(path), MAX_BYTES)
        except (OSError, ValueError):
            return None

    def has_colours(self, characters: int) -> bool:
        """For so much source; then it is taken."""
        if characters > self._colours:
            return False
        self._colours -= characters
        return True

    def kernels(self, path: str) -> dict[str, str]:
        """By name, out of a module that Inductor wrote; raises `TooMuch`."""
        if path not in self._kernels:
            found = _DEFINITION.finditer(self.text(path) or "")
            self._kernels[path] = {match["name"]: match["text"] for match in found}
        return self._kernels[path]


class TooMuch(Exception):
    """There is no room left."""


def source_of(record: FileRecord, reading: Reading) -> tuple[list[str] | None, str | None]:
    """The file's lines; or None, and why."""
    if record.changed:
        return None, CHANGED_MEANWHILE
    if record.sha256 is None:
        return None, NOT_HERE
    found = False
    try:
        for text in _candidates(record, reading):
            found = True
            if hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() == record.sha256:
                return text.removesuffix("\n").split("\n"), None
    except TooMuch:
        return None, TOO_MUCH
    return None, CHANGED if found else NOT_HERE


def _candidates(record: FileRecord, reading: Reading) -> Iterator[str]:
    """Where it was; in Python's own cache, for cells of a notebook; under the working folder.

    The last is for reports of another machine: a checkout has the file under another root.
    """
    path = Path(record.file)
    yield from filter(
        None, [_as_run(reading.text(record.file)), _kept(record.text_in or record.file)]
    )
    if path.is_absolute():
        for start in range(1, len(path.parts)):
            text = _as_run(reading.text(str(Path(*path.parts[start:]))))
            if text:
                yield text


def _kept(file: str) -> str:
    """What Python itself keeps of a file that was read before."""
    return "".join(linecache.getlines(file)) if file in linecache.cache else ""


def _as_run(text: str | None) -> str | None:
    if text is None:
        return None
    text = text.replace("\r\n", "\n").replace("\r", "\n").removeprefix("\ufeff")
    # As Python's cache of lines has it, which the digest is of.
    return text if text.endswith("\n") or not text else f"{text}\n"


class KernelTexts:
    """Kernels' own source, out of the modules that Inductor wrote, as long as there is room."""

    def __init__(self, reading: Reading) -> None:
        self._left = MAX_KERNELS
        self._reading = reading

    def of(self, kernel: KernelRecord) -> str | None:
        if kernel.path is None or kernel.language == "extern":
            return None
        try:
            text = self._reading.kernels(kernel.path).get(kernel.kernel_name, "").strip("\n")
        except TooMuch:
            return None
        if not text or len(text) > min(MAX_KERNEL, self._left):
            return None
        self._left -= len(text)
        return text


# ``name = async_compile.triton('name', '''...''', ...)``
_DEFINITION = re.compile(
    r"^(?P<name>\w+) = async_compile\.\w+\([^\n]*?r?'''(?P<text>.*?)'''",
    re.MULTILINE | re.DOTALL,
)
