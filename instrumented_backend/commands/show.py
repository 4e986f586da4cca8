"""``instrumented-backend show``: saved reports, printed again."""

import os
from pathlib import Path

import click

from instrumented_backend import settings
from instrumented_backend.records import Report, ReportError, find_reports, read_report
from instrumented_backend.views.text import render


def _tables(ctx: click.Context, parameter: click.Parameter, value: str) -> tuple[str, ...]:
    try:
        return settings.read_tables(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command("show")
@click.argument("reports", nargs=-1, required=True, type=Path, metavar="REPORT...")
@click.option(
    "--tables",
    default="summary",
    show_default=True,
    callback=_tables,
    help=f"A comma list of {', '.join(settings.TABLES)}; or all.",
)
def command(reports: tuple[Path, ...], tables: tuple[str, ...]) -> None:
    """Print saved reports again, on any machine.

    A program leaves report.rank<R>.pid<P>.json in INSTRUMENTED_DIR when it ends. REPORT is such a
    file, or the folder, for all in it.
    """
    read = read_all(reports)
    for report in read:
        if len(read) > 1:
            click.echo(f"== rank {report.run.rank}, pid {report.run.pid}")
        click.echo(render(report, tables))


def read_all(paths: tuple[Path, ...]) -> list[Report]:
    """The reports in files, and all in folders; raises click.UsageError."""
    return [_read(file) for path in paths for file in _files(path)]


def _files(path: Path) -> list[Path]:
    """A report, or those in a folder."""
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
