"""The files that a program's lines are in, and whether they still are what it runs.

People edit a file while the program runs. Python has read it long before, so that the report's
lines are those of the text before.
"""

import hashlib
import linecache
import os
import sys
import time
from collections.abc import Iterable

from instrumented_backend.observe.ledger import process_age_s
from instrumented_backend.records import FileRecord

MAX_FILES = 500
MAX_BYTES = 4 << 20
CLOCKS_S = 0.1  # by which the clocks of processes and of files may differ

_State = tuple[int, float] | None  # a file's size, and when it was changed; None if it isn't there


class SourceFiles:
    """Takes note of each file when it is first seen, which costs a call of ``stat``."""

    def __init__(self) -> None:
        self._seen: dict[str, _State] = {}

    def see_program(self) -> None:
        """Python reads the program's own file when the process starts."""
        file = getattr(sys.modules.get("__main__"), "__file__", None)
        if not isinstance(file, str) or file in self._seen:
            return
        state, age_s = _state(file), process_age_s()
        if state is not None and age_s is not None:
            started = time.time() - age_s
            self._seen[file] = None if state[1] > started + CLOCKS_S else state

    def see(self, files: Iterable[str]) -> None:
        for file in files:
            if file not in self._seen and len(self._seen) < MAX_FILES:
                self._seen[file] = _state(file)

    def records(self, names: Iterable[str | None]) -> list[FileRecord]:
        known = dict.fromkeys(name for name in names if name is not None)
        return [self._record(name) for name in list(known)[:MAX_FILES]]

    def _record(self, file: str) -> FileRecord:
        kept, state = linecache.cache.get(file), _state(file)
        is_kept = kept is not None and len(kept) > 1
        if is_kept and state is None:
            return FileRecord(file, _digest(file))  # a notebook's cell, or a file in an archive
        if state is not None and self._seen.get(file, state) != state:
            # What Python keeps may be of before the change.
            if is_kept and kept is not None and kept[:2] == self._seen[file]:
                return FileRecord(file, _digest(file))
            return FileRecord(file, changed=True)
        return FileRecord(file, _digest(file))


def _state(file: str) -> _State:
    try:
        found = os.stat(file)
    except (OSError, ValueError):
        return None
    return found.st_size, found.st_mtime


def _digest(file: str) -> str | None:
    """Of the text as Python has it; None where it has none, or too much."""
    text = "".join(linecache.getlines(file))
    if not text or len(text) > MAX_BYTES:
        return None
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
