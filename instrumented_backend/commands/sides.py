"""Reports that a command line names: a file, or the folder of a run with one for each rank."""

import os
from pathlib import Path

import click

from instrumented_backend.records import Report, ReportError, find_reports, read_report
from instrumented_backend.records.escapes import to_bytes


def reports_by_rank(path: Path) -> dict[int, Report]:
    """Of one run; helpers of a process, such as DataLoader workers, are left out.

    Raises UsageError where there is none, or where two are of one rank.
    """
    found: dict[int, tuple[Path, Report]] = {}
    for file in _files(path):
        report = _read(file)
        if report.run.worker is not None and os.path.isdir(path):
            continue
        rank = report.run.rank
        if rank in found:
            raise click.UsageError(
                f"{path}: two reports of rank {rank}, {found[rank][0].name} and {file.name}: "
                "name one of them, or give each run a folder of its own"
            )
        found[rank] = (file, report)
    if not found:
        raise click.UsageError(f"{path}: only reports of workers in this folder; name one of them")
    return {rank: report for rank, (_, report) in sorted(found.items())}


def _files(path: Path) -> list[Path]:
    if not os.path.isdir(path):
        return [path]
    try:
        found = find_reports(path)
    except ReportError as error:
        raise click.UsageError(str(error)) from None
    if not found:
        raise click.UsageError(f"{path}: no report.rank<R>.pid<P>.json in this folder")
    return found


def _read(path: Path) -> Report:
    try:
        return read_report(path)
    except ReportError as error:
        raise click.UsageError(str(error)) from None


def write_output(text: str, output: Path | None) -> None:
    """To a file or to stdout; raises UsageError where the file cannot be written."""
    content = to_bytes(text + "\n")
    if output is None:
        click.echo(content, nl=False)
        return
    try:
        output.write_bytes(content)
    except (OSError, ValueError) as error:  # ValueError: no name that a file can have
        why = error.strerror if isinstance(error, OSError) else error
        raise click.UsageError(f"{output}: cannot be written: {why}") from None
