"""The one place where failures of our own end up, so that they never reach the program."""

import logging
import os
import threading
import traceback
from types import TracebackType

from instrumented_backend.observe.observer import Observer
from instrumented_backend.records import Note
from instrumented_backend.records.notes import LOST

MAX_NOTES = 100

log = logging.getLogger("instrumented_backend")


class Failures(Observer):
    """Notes on what could not be observed; each is said once on stderr and kept in the report."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._notes: dict[Note, None] = {}  # ordered, without repeats

    @property
    def notes(self) -> list[Note]:
        with self._lock:
            return list(self._notes)

    def reset(self) -> None:
        with self._lock:
            self._notes.clear()

    def after_fork(self) -> None:
        """In the child: the lock may have been held by a thread that exists no more."""
        self._lock = threading.Lock()
        self.reset()

    def note(self, code: str, text: str) -> None:
        """Keep a remark for the report, with one of the codes of notes; silent."""
        with self._lock:
            if len(self._notes) < MAX_NOTES:
                self._notes.setdefault(Note(code, text))

    def say(self, code: str, text: str) -> None:
        """Keep a remark for the report, and say it on stderr, once."""
        self._lost(Note(code, text))

    def guard(self, what: str) -> "_Guard":
        """Lose ``what`` instead of raising, where an observer of ours fails in this block."""
        return _Guard(self, what)

    def lose(self, what: str, error: Exception) -> None:
        """``what`` is not observed, because of ``error``, which has been caught."""
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{os.path.basename(frame.filename)}:{frame.lineno}"
        first_line = str(error).partition("\n")[0]  # CUDA's have five
        text = f"lost: {what}: {type(error).__name__}: {first_line} ({place})"
        self._lost(Note(LOST, text))
        log.debug("%s", what, exc_info=error)

    def _lost(self, note: Note) -> None:
        with self._lock:
            known = note in self._notes or len(self._notes) >= MAX_NOTES
            if not known:
                self._notes[note] = None
        if not known:
            log.warning("%s", note.text)


class _Guard:
    """Not made of a generator: some of these blocks are entered for each op that is sampled."""

    __slots__ = ("_failures", "_what")

    def __init__(self, failures: Failures, what: str) -> None:
        self._failures = failures
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        # Any: what fails in an observer must not reach the program.
        if not isinstance(error, Exception):
            return False
        self._failures.lose(self._what, error)
        return True
