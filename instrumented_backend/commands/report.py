"""``instrumented-backend report``: saved reports as one HTML page."""

from pathlib import Path

import click

from instrumented_backend.commands.saved import places, read_all
from instrumented_backend.records.remote import AnyPath, RemotePath
from instrumented_backend.records.whole_file import write_whole


@click.command("report")
@click.argument("reports", nargs=-1, required=True, callback=places, metavar="REPORT...")
@click.option(
    "-o",
    "--output",
    type=Path,
    metavar="FILE",
    help="Where the page goes; - is stdout.  [default: beside the report, as .html; of a URL, "
    "report.html]",
)
@click.option(
    "--source/--no-source",
    default=True,
    show_default=True,
    help="With the text of your files and of generated code, or without.",
)
def command(reports: tuple[AnyPath, ...], output: Path | None, source: bool) -> None:
    """Make one HTML page of saved reports, with your own source in it.

    A program leaves report.rank<R>.pid<P>.json in INSTRUMENTED_DIR when it ends. REPORT is such a
    file, or the folder, for all in it. The page needs no network and no other file.

    Your files are read from where they were when the program ran, and shown if they are still the
    same.

    \b
        instrumented-backend report reports
        instrumented-backend report reports -o page.html --no-source
    """
    from instrumented_backend.views.page.page import PageTooLarge, render_page, to_bytes

    try:
        page = to_bytes(render_page(read_all(reports), source=source))
    except PageTooLarge as error:
        raise click.UsageError(f"no page: {error.strerror}") from None
    if output == Path("-"):
        click.echo(page, nl=False)
        return
    path = output or _beside(reports[0])
    try:
        write_whole(path, page)
    except (OSError, ValueError) as error:  # ValueError: no name that a file can have
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise click.UsageError(
            f"{path}: cannot be written: {reason}; name another with -o"
        ) from None
    click.echo(f"{path}: {len(page) / 1e6:.1f} MB, to be opened in a browser")


def _beside(report: AnyPath) -> Path:
    if isinstance(report, RemotePath):
        return Path("report.html")
    return report / "report.html" if report.is_dir() else report.with_suffix(".html")
