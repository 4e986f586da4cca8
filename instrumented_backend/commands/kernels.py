"""``instrumented-backend kernels``: what is in generated code."""

import gc
import sys
from pathlib import Path

import click

from instrumented_backend.commands.layout import echo, format_option

MANY_FILES = 50  # more of them get a progress bar


@click.command("kernels")
@click.argument("paths", nargs=-1, required=True, type=Path, metavar="PATH...")
@format_option
def command(paths: tuple[Path, ...], layout: str, quote_formulas: bool) -> None:
    """Describe every kernel in generated code, on any machine.

    PATH is a module that Inductor generated (of a graph, or of one kernel), or a folder of them,
    such as an Inductor cache. The code is read, never run.

    \b
        instrumented-backend kernels /tmp/torchinductor_$USER
        instrumented-backend kernels graph.py --format json
    """
    from instrumented_backend.kernels.code_files import CodeFileError, find_files, read_files
    from instrumented_backend.views.kernels import KernelsView

    gc.disable()  # syntax trees hold no cycles, and looking for some takes a third of the time
    try:
        files = find_files(paths)
        if sys.stderr.isatty() and len(files) > MANY_FILES:
            with click.progressbar(files, label="Reading", file=sys.stderr) as bar:
                found = read_files(bar)
        else:
            found = read_files(files)
    except CodeFileError as error:
        raise click.UsageError(str(error)) from None
    if len(found.skipped) == len(files):
        first = next(iter(found.skipped.values()))
        raise click.UsageError(f"no generated kernel found; {first}")
    if found.kernels or layout != "table":
        echo(KernelsView(found.kernels), layout, quote_formulas)
    if not found.kernels:
        # A graph of views, such as x.t(), has generated code and nothing to launch.
        click.echo("no kernel in it", err=layout != "table")
    if found.skipped:
        click.echo(f"{len(found.skipped)} files are no generated code: left out", err=True)
