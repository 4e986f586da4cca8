"""Report files: read one, find those in a folder, read those of a run together."""

import os
import re
from pathlib import Path
from typing import Any, overload

from instrumented_backend.records import bounded
from instrumented_backend.records.rank_reports import RankReport
from instrumented_backend.records.ranks import Run, runs
from instrumented_backend.records.remote import AnyPath, RemotePath
from instrumented_backend.records.report import Report
from instrumented_backend.records.version import ReportError

MAX_BYTES = 1 << 27  # of a report: one with ten thousand kernels has a fifth of it
_NAME = re.compile(r"report\.rank(?P<rank>\d+)\.pid(?P<pid>\d+)\.json")


def read_report(path: AnyPath) -> Report:
    """The report in a file; raises `ReportError` with the path in its one line."""
    content = content_of(path)
    try:
        return Report.from_json(bounded.decoded(content))
    except bounded.NotReadable as error:
        raise ReportError(f"not a report of instrumented-backend: {error}", path) from None
    except ReportError as error:
        raise ReportError(error.problem, path) from None


def read_rank(path: AnyPath) -> RankReport:
    """Of the report in a file, what ranks are compared by; raises `ReportError` likewise."""
    content = content_of(path)
    try:
        return RankReport.from_json(content)
    except ReportError as error:
        raise ReportError(error.problem, path) from None


def read_runs(folder: AnyPath) -> tuple[list[Run], list[ReportError]]:
    """The runs whose reports are in a folder, the oldest first, and the files that are none.

    Raises `ReportError` where the folder cannot be read.
    """
    reports, errors = [], []
    for path in find_reports(folder):
        try:
            report = read_rank(path)
            report.file_name = path.name
            reports.append(report)
        except ReportError as error:
            errors.append(error)
    return runs(reports), errors


def content_of(path: AnyPath) -> bytes:
    """A report's file, not decoded; raises `ReportError`."""
    try:
        if isinstance(path, RemotePath):
            content = bounded.checked(path.read_bytes(MAX_BYTES + 1), MAX_BYTES)
        else:
            content = bounded.read_bytes(path, MAX_BYTES)
        return bounded.light(content)
    except OSError as error:
        raise ReportError(f"cannot be read: {error.strerror}", path) from None
    except bounded.NotReadable as error:
        raise ReportError(f"not a report of instrumented-backend: {error}", path) from None


def process_of(report: Path) -> int | None:
    """The number of the process that wrote a report, by the file's name."""
    match = _NAME.fullmatch(report.name)
    return int(match["pid"]) if match else None


@overload
def find_reports(folder: Path) -> list[Path]: ...
@overload
def find_reports(folder: RemotePath) -> list[RemotePath]: ...
def find_reports(folder: AnyPath) -> list[Any]:
    """The reports that programs left in a folder, by rank and process; raises `ReportError`."""
    try:
        names = folder.names() if isinstance(folder, RemotePath) else os.listdir(folder)
    except OSError as error:
        raise ReportError(f"cannot be read: {error.strerror}", folder) from None
    found = [
        match
        for name in names
        if (match := _NAME.fullmatch(name))
        and (isinstance(folder, RemotePath) or os.path.isfile(folder / name))
    ]
    found.sort(key=lambda match: [int(number) for number in match.groups()])
    return [folder / match.string for match in found]
