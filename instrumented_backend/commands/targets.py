"""What ``top`` is asked to watch: a folder, a report, or a process and those that it starts."""

import contextlib
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from instrumented_backend import settings
from instrumented_backend.commands import processes
from instrumented_backend.records import ReportError, find_reports
from instrumented_backend.records.store import process_of

FOLDER = "INSTRUMENTED_DIR"
_DIGITS = 19  # more than any process's number has
_BETWEEN_S = 2.0  # looks at all processes of the machine


class NoTarget(ValueError):
    """There is nothing of that name to watch; the message is one line."""


@dataclass(frozen=True)
class Target:
    """``paths`` lists the reports that there are now; it may raise `ReportError`.

    ``is_over``: there is none, and nobody is left who could write one.
    """

    name: str
    paths: Callable[[], list[Path]]
    is_over: Callable[[], bool] = lambda: False


def target(argument: str | None) -> Target:
    """Raises `NoTarget`. Without an argument: INSTRUMENTED_DIR or, where that is unset, "."."""
    if argument is None:
        argument = os.environ.get(FOLDER, "").strip() or "."
    if "://" in argument:
        raise NoTarget(f"{argument}: top watches folders of this machine")
    path = Path(argument)
    try:
        exists, is_folder = path.exists(), path.is_dir()
    except OSError as error:
        raise NoTarget(f"{argument}: cannot be read: {error.strerror}") from None
    if not exists and argument.isdecimal() and len(argument) < _DIGITS:
        return _process(int(argument))
    if exists and not is_folder:
        return Target(str(path), lambda: [path])
    return Target(str(path), lambda: _reports(path))


def _reports(folder: Path) -> list[Path]:
    # A program makes its folder when it has something to write.
    try:
        return find_reports(folder) if folder.exists() else []
    except OSError as error:  # of a name that no folder can have
        raise ReportError(f"{folder}: cannot be read: {error.strerror}") from None


def _process(pid: int) -> Target:
    if processes.find(pid) is None:
        raise NoTarget(f"{pid}: no such process, and no such folder")
    tree = _Tree(pid)
    try:
        tree.look()
    except OSError as error:
        raise NoTarget(f"process {pid}: cannot be looked into: {error.strerror}") from None
    if not tree.folders:
        raise NoTarget(
            f"process {pid}: neither it nor what it started has {FOLDER}: set it, and it is kept "
            "current there; or give the folder, if the program sets it itself"
        )
    return Target(f"process {pid}", tree.paths, tree.is_over)


class _Tree:
    """A process and those that it started: where they leave reports, and which are theirs."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._looked_s = -math.inf
        self._members = {pid}
        self._running = {pid}
        self._found: set[Path] = set()
        self._is_over = False  # by the last look
        self.folders: set[Path] = set()

    def look(self) -> None:
        """Raises OSError where the process itself may not be looked into."""
        if time.monotonic() - self._looked_s < _BETWEEN_S:
            return
        self._looked_s = time.monotonic()
        # Of each: where one has ended, those that it started have another parent.
        self._running = processes.with_descendants(self._running)
        self._members |= self._running
        if self._pid in self._running:
            self.folders.update(_folders(self._pid))
        for member in self._running - {self._pid}:
            with contextlib.suppress(OSError):  # it has ended, or is another user's
                self.folders.update(_folders(member))

    def paths(self) -> list[Path]:
        with contextlib.suppress(OSError):  # it has ended, its reports are there
            self.look()
        have_ended = all(processes.find(one) is None for one in self._running)
        for folder in self.folders:
            reports = _reports(folder)
            self._found.update(path for path in reports if process_of(path) in self._members)
        paths = sorted(path for path in self._found if path.exists())
        self._is_over = have_ended and not paths
        if self._is_over:
            raise ReportError(f"process {self._pid}: ended, without a report")
        return paths

    def is_over(self) -> bool:
        return self._is_over


def _folders(pid: int) -> list[Path]:
    """Where a process keeps its report, by the variables that it was started with."""
    variables = processes.variables(pid)
    named = variables.get(FOLDER, "").strip() or variables.get(settings.RUN, "").strip()
    return [Path(processes.folder(pid), named)] if named else []
