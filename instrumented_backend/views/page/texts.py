"""Texts that the page shows and the report does not hold: the program's files, generated code.

Each is read from where it was, or from under the working folder, if it is what the program ran.
"""

import hashlib
import linecache
import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
from pathlib import Path

from instrumented_backend.records import FileRecord, KernelRecord, bounded

MAX_BYTES = 4 << 20  # of one file
MAX_KERNEL = 20_000  # characters of one kernel
MAX_KERNELS = 1_500_000  # characters of all of them

NOT_HERE = "its text is not on this machine"
CHANGED_MEANWHILE = "it was changed while the program ran: its text would not be what ran"
CHANGED = "it has changed since the program ran: its text would not be what ran"


def source_of(record: FileRecord) -> tuple[list[str] | None, str | None]:
    """The file's lines; or None, and why."""
    if record.changed:
        return None, CHANGED_MEANWHILE
    if record.sha256 is None:
        return None, NOT_HERE
    found = False
    for text in _candidates(record):
        found = True
        if hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() == record.sha256:
            return text.removesuffix("\n").split("\n"), None
    return None, CHANGED if found else NOT_HERE


def _candidates(record: FileRecord) -> Iterator[str]:
    """Where it was; in Python's own cache, for cells of a notebook; under the working folder.

    The last is for reports of another machine: a checkout has the file under another root.
    """
    path = Path(record.file)
    below = (Path(*path.parts[start:]) for start in range(1, len(path.parts)))
    texts = chain(
        [_read(path), _kept(record.text_in or record.file)],
        map(_read, below if path.is_absolute() else ()),
    )
    return filter(None, texts)


def _kept(file: str) -> str:
    """What Python itself keeps of a file that was read before."""
    return "".join(linecache.getlines(file)) if file in linecache.cache else ""


def _read(path: Path) -> str | None:
    try:
        text = bounded.read_text(path, MAX_BYTES)
    except (OSError, ValueError):
        return None
    text = text.replace("\r\n", "\n").replace("\r", "\n").removeprefix("\ufeff")
    # As Python's cache of lines has it, which the digest is of.
    return text if text.endswith("\n") or not text else f"{text}\n"


class KernelTexts:
    """Kernels' own source, out of the modules that Inductor wrote, as long as there is room."""

    def __init__(self) -> None:
        self._left = MAX_KERNELS

    def of(self, kernel: KernelRecord) -> str | None:
        if kernel.path is None or kernel.language == "extern":
            return None
        match = _definition(kernel.kernel_name).search(_module(kernel.path))
        text = match["text"].strip("\n") if match else None
        if not text or len(text) > min(MAX_KERNEL, self._left):
            return None
        self._left -= len(text)
        return text


@lru_cache(maxsize=64)  # a graph's kernels follow each other
def _module(path: str) -> str:
    try:
        return bounded.read_text(Path(path), MAX_BYTES)
    except (OSError, ValueError):
        return ""


def _definition(name: str) -> re.Pattern[str]:
    """``name = async_compile.triton('name', '''...''', ...)``"""
    return re.compile(
        rf"^{re.escape(name)} = async_compile\.\w+\([^\n]*?r?'''(?P<text>.*?)'''",
        re.MULTILINE | re.DOTALL,
    )
