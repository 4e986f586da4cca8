"""``instrumented-backend show``: saved reports, printed again, and those of a run together."""

import click

from instrumented_backend import settings
from instrumented_backend.commands.saved import is_folder, no_report_in, places, read_one
from instrumented_backend.records import ReportError, read_runs
from instrumented_backend.records.remote import AnyPath
from instrumented_backend.views.ranks import render_ranks
from instrumented_backend.views.text import render


def _tables(ctx: click.Context, parameter: click.Parameter, value: str) -> tuple[str, ...]:
    try:
        return settings.read_tables(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command("show")
@click.argument("reports", nargs=-1, required=True, callback=places, metavar="REPORT...")
@click.option(
    "--tables",
    default="summary",
    show_default=True,
    callback=_tables,
    help=f"A comma list of {', '.join(settings.TABLES)}; or all.",
)
def command(reports: tuple[AnyPath, ...], tables: tuple[str, ...]) -> None:
    """Print saved reports again, on any machine.

    A program leaves report.rank<R>.pid<P>.json in INSTRUMENTED_DIR when it ends. REPORT is such a
    file, or the folder, for all in it; either may be a URL, such as s3://bucket/run. Of a folder,
    the ranks of each run are shown together, then the whole report of its first.
    """
    folders = [path for path in reports if is_folder(path)]
    alone = len(reports) == 1
    for path in reports:
        if path in folders:
            _show_folder(path, tables, alone)
        else:
            _show(path, tables, heading=not alone)


def _show(path: AnyPath, tables: tuple[str, ...], heading: bool) -> None:
    report = read_one(path)
    if heading:
        click.echo(f"== rank {report.run.rank}, pid {report.run.pid}")
    click.echo(render(report, tables))


def _show_folder(folder: AnyPath, tables: tuple[str, ...], alone: bool) -> None:
    try:
        runs, errors = read_runs(folder)
    except ReportError as error:
        raise click.UsageError(str(error)) from None
    for run in runs:
        paths = [folder / name for report in run.reports if (name := report.file_name)]
        alone = alone and len(runs) == 1
        if len(paths) > 1:
            click.echo(f"{render_ranks(run, None)}\n")
        _show(paths[0], tables, heading=not alone or len(paths) > 1)
        if len(paths) > 1:
            click.echo(f"\nnext: instrumented-backend show {paths[1]} prints another of them")
    if errors:
        raise click.UsageError(
            str(errors[0]) + (f"; {len(errors) - 1} more like it" if len(errors) > 1 else "")
        )
    if not runs:
        raise no_report_in(folder)
