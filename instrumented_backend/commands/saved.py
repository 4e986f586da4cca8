"""Saved reports that a command line names: files, and folders with several; either may be a URL."""

from collections.abc import Iterable

import click

from instrumented_backend.records import Report, ReportError, find_reports, read_report
from instrumented_backend.records.remote import AnyPath, path_of


def places(
    ctx: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> tuple[AnyPath, ...]:
    """The callback of an argument with ``nargs=-1``."""
    try:
        return tuple(map(path_of, value))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def read_one(path: AnyPath) -> Report:
    """Raises UsageError."""
    try:
        return read_report(path)
    except ReportError as error:
        raise click.UsageError(str(error)) from None


def read_all(paths: Iterable[AnyPath]) -> list[Report]:
    """Read the files, and all reports in the folders; raises UsageError."""
    return [read_one(file) for path in paths for file in files_of(path)]


def files_of(path: AnyPath) -> list[AnyPath]:
    """A report, or those in a folder, at least one; raises UsageError."""
    if not is_folder(path):
        return [path]
    try:
        found = find_reports(path)
    except ReportError as error:
        raise click.UsageError(str(error)) from None
    if not found:
        raise no_report_in(path)
    return list(found)


def no_report_in(folder: AnyPath) -> click.UsageError:
    return click.UsageError(f"{folder}: no report.rank<R>.pid<P>.json in this folder")


def is_folder(path: AnyPath) -> bool:
    """Raises UsageError where that cannot be told."""
    try:
        return path.is_dir()
    except OSError as error:
        raise click.UsageError(f"{path}: cannot be read: {error.strerror}") from None
