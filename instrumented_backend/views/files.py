"""The report as files: one JSON, and a CSV file for each table."""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from instrumented_backend.records import Report
from instrumented_backend.records.escapes import to_bytes
from instrumented_backend.records.remote import AnyPath, RemotePath
from instrumented_backend.records.whole_file import sweep, write_whole, written_part
from instrumented_backend.views.output import to_csv
from instrumented_backend.views.tables import TABLES


def write_report(report: Report, folder: AnyPath) -> None:
    """``report.rank<R>.pid<P>.json``, whole or not at all; raises OSError."""
    write_whole(folder / f"report.{_suffix(report)}.json", report.to_json() + "\n")


def write_files(report: Report, folder: AnyPath) -> dict[str, OSError]:
    """``report.rank<R>.pid<P>.json`` and ``<table>.rank<R>.pid<P>.csv``, each whole or not at all.

    Returns which could not be written, and why; raises OSError where there can be no folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sweep(folder)
    suffix = _suffix(report)
    contents = {f"report.{suffix}.json": (report.to_json() + "\n").encode()}
    for table in TABLES.values():
        rows = list(table.rows(report))
        if rows:
            contents[f"{table.name}.{suffix}.csv"] = to_bytes(to_csv(rows))
    lost = {}
    for name, content in contents.items():
        try:
            write_whole(folder / name, content)
        except OSError as error:
            lost[name] = error
    return lost


class CurrentFiles:
    """A report's file, brought up to date while the program runs."""

    def __init__(self, folder: AnyPath | None, run: Path | None) -> None:
        """``run`` is where `run` collects reports, if it is still there.

        It comes first: what a reader has seen in ``folder``, `run` shows too, should the program
        be killed before both are written.
        """
        self._folders: tuple[AnyPath, ...] = tuple(
            each for each in (run, folder) if each is not None
        )
        self._run = run
        self._swept = False
        self._name: str | None = None  # of the file that was written last
        self._texts: dict[str, tuple[list[Any], bytes]] = {}  # of lists in it, by their names
        self._pid = os.getpid()

    def __bool__(self) -> bool:
        return bool(self._folders)

    def save(self, report: Report, go_on: Callable[[], None]) -> list[str]:
        """Returns what could not be written, a line for each folder.

        A folder that is gone is not made again: it may be a disk that will come back.
        """
        if self._pid != os.getpid():  # forked: the name is the parent's
            self._name, self._swept, self._pid = None, False, os.getpid()

        def pieces() -> Iterator[bytes]:
            for piece in report.encoded(self._texts):
                go_on()
                yield piece
            yield b"\n"

        name = f"report.{_suffix(report)}.json"
        lost = []
        for folder in self._folders:
            if folder == self._run and not folder.is_dir():
                continue
            try:
                self._save(folder / name, pieces(), go_on)
            except OSError as error:
                reason = error.strerror or str(error)
                lost.append(f"lost: not kept up to date in {folder}: {reason}")
        if self._name not in (None, name):  # the process has got another rank
            self.discard()
        self._name, self._swept = name, True
        return lost

    def _save(self, path: AnyPath, pieces: Iterable[bytes], go_on: Callable[[], None]) -> None:
        if isinstance(path, RemotePath):
            path.write_bytes(b"".join(pieces))
            return
        if not self._swept:
            sweep(path.parent)
        with written_part(path, pieces) as part:
            go_on()
            os.replace(part, path)

    def discard(self) -> None:
        """Remove what was written: there is nothing to report, or the report has another name."""
        name, self._name = self._name, None
        if name is not None and self._pid == os.getpid():
            for folder in self._folders:
                with contextlib.suppress(OSError):  # gone, or the folder is
                    (folder / name).unlink()

    def delivered(self, report: Report) -> None:
        """The last one was written, as files of their own."""
        if self._name != f"report.{_suffix(report)}.json":
            self.discard()


def _suffix(report: Report) -> str:
    return f"rank{report.run.rank}.pid{report.run.pid}"
