"""The commands: ``instrumented-backend demo | run | show | kernels``."""

import gc
import sys
from pathlib import Path

import click

from instrumented_backend import __version__, settings
from instrumented_backend.records import Report, ReportError, read_report
from instrumented_backend.script import Script, run_as_main
from instrumented_backend.views.text import render

MANY_FILES = 50  # more of them get a progress bar

_VARIABLES = "\n".join(
    f"  {variable.name} (default: {variable.default or 'empty'})\n      {variable.meaning}"
    for variable in settings.VARIABLES
)


class _Commands(click.Group):
    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(f"\nEnvironment variables:\n{_VARIABLES}\n")


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def cli() -> None:
    """torch.compile(model, backend="instrumented"): Inductor, and a report of what it did.

    The report comes at the end of any program that uses the backend. These commands try it
    out, run a program that does not name it, and print a saved report again.
    """


@cli.command()
@click.option("--steps", default=10, show_default=True, help="Training steps.")
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    help="Where to train. [default: cuda if there is one]",
)
def demo(steps: int, device: str | None) -> None:
    """Train a small GPT on made-up text with the backend, then show the report.

    The model checks its loss inside forward, as one does; the report shows what that costs.
    """
    settings.load()
    from instrumented_backend.demo import train

    train(steps, device)


@cli.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option("-m", "module", metavar="MODULE", help="Run a module, as python -m does.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[SCRIPT] [ARGS]...")
def run(module: str | None, arguments: tuple[str, ...]) -> Script:
    """Run an unchanged program with this backend in Inductor's place.

    Every torch.compile in it that names no backend, or Inductor, goes through this one. Its
    arguments, output and exit code are those of `python SCRIPT ARGS`.

    \b
        instrumented-backend run train.py --epochs 1
        instrumented-backend run -m package.train --epochs 1
    """
    settings.load()
    if module is not None:
        return Script(module=module, path=None, arguments=arguments)
    if not arguments:
        raise click.UsageError("name a SCRIPT to run, or a module with -m")
    path = Path(arguments[0])
    if not path.exists():
        raise click.BadParameter(f"{path}: no such file", param_hint="SCRIPT")
    return Script(module=None, path=path, arguments=arguments[1:])


def _tables(ctx: click.Context, parameter: click.Parameter, value: str) -> tuple[str, ...]:
    try:
        return settings.read_tables(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@cli.command()
@click.argument("reports", nargs=-1, required=True, type=Path, metavar="REPORT.json...")
@click.option(
    "--tables",
    default="summary",
    show_default=True,
    callback=_tables,
    help=f"A comma list of {', '.join(settings.TABLES)}; or all.",
)
def show(reports: tuple[Path, ...], tables: tuple[str, ...]) -> None:
    """Print saved reports again, on any machine.

    A program leaves report.rank<R>.pid<P>.json in INSTRUMENTED_DIR when it ends.
    """
    for report in [_read(path) for path in reports]:
        if len(reports) > 1:
            click.echo(f"== rank {report.run['rank']}, pid {report.run['pid']}")
        click.echo(render(report, tables))


@cli.command()
@click.argument("paths", nargs=-1, required=True, type=Path, metavar="PATH...")
@click.option(
    "--format",
    "layout",
    type=click.Choice(["table", "json", "csv"]),
    default="table",
    show_default=True,
    help="json and csv have every column.",
)
def kernels(paths: tuple[Path, ...], layout: str) -> None:
    """Describe every kernel in generated code, on any machine.

    PATH is a module that Inductor generated (of a graph, or of one kernel), or a folder of them,
    such as an Inductor cache. The code is read, never run.

    \b
        instrumented-backend kernels /tmp/torchinductor_$USER
        instrumented-backend kernels graph.py --format json
    """
    from instrumented_backend.kernels.collect import CollectError, collect, find_files
    from instrumented_backend.views.kernels import render_kernels

    gc.disable()  # syntax trees hold no cycles, and looking for some takes a third of the time
    try:
        files = find_files(paths)
        if sys.stderr.isatty() and len(files) > MANY_FILES:
            with click.progressbar(files, label="Reading", file=sys.stderr) as bar:
                collected = collect(bar)
        else:
            collected = collect(files)
    except CollectError as error:
        raise click.UsageError(str(error)) from None
    if not collected.kernels:
        first = next(iter(collected.skipped.values()))
        raise click.UsageError(f"no generated kernel found; {first}")
    click.echo(render_kernels(collected.kernels, layout), nl=layout != "csv")
    if collected.skipped:
        click.echo(f"{len(collected.skipped)} files are no generated code: left out", err=True)


def _read(path: Path) -> Report:
    try:
        return read_report(path)
    except ReportError as error:
        raise click.UsageError(str(error)) from None


def main() -> None:
    """The console script. A script that `run` starts runs outside click, which would change
    what its exceptions and its Ctrl-C do."""
    try:
        result = cli.main(standalone_mode=False)
    except (click.ClickException, settings.SettingsError) as error:
        message = error.format_message() if isinstance(error, click.ClickException) else error
        click.echo(f"instrumented-backend: {message}", err=True)
        sys.exit(2)
    except click.Abort:
        sys.exit(130)
    if isinstance(result, Script):
        run_as_main(result)
    elif isinstance(result, int):
        sys.exit(result)
