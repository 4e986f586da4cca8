"""Report files: read one, find those in a folder."""

import os
import re
from pathlib import Path

from instrumented_backend.records import bounded
from instrumented_backend.records.report import Report
from instrumented_backend.records.version import ReportError

MAX_BYTES = 1 << 28  # of a report: one with ten thousand kernels has a tenth of it
_NAME = re.compile(r"report\.rank(\d+)\.pid(\d+)\.json")


def read_report(path: Path) -> Report:
    """The report in a file; raises `ReportError` with the path in its one line."""
    try:
        text = bounded.read_text(path, MAX_BYTES)
    except OSError as error:
        raise ReportError(f"{path}: cannot be read: {error.strerror}") from None
    except bounded.NotReadable as error:
        raise ReportError(f"{path}: not a report of instrumented-backend: {error}") from None
    try:
        return Report.from_json(text)
    except ReportError as error:
        raise ReportError(f"{path}: {error}") from None


def find_reports(folder: Path) -> list[Path]:
    """The reports that programs left in a folder, by rank and process; raises `ReportError`."""
    try:
        names = os.listdir(folder)
    except OSError as error:
        raise ReportError(f"{folder}: cannot be read: {error.strerror}") from None
    found = [
        match
        for name in names
        if (match := _NAME.fullmatch(name)) and os.path.isfile(folder / name)
    ]
    found.sort(key=lambda match: [int(number) for number in match.groups()])
    return [folder / match.string for match in found]
