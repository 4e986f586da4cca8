"""``instrumented-backend run``: any command, with this backend in Inductor's place."""

import os
import shlex
import sys
import tempfile
from pathlib import Path

import click

from instrumented_backend import adoption, settings
from instrumented_backend.commands import child, program
from instrumented_backend.commands.adopting import adopting
from instrumented_backend.records import Report, ReportError, find_reports, read_report
from instrumented_backend.records.escapes import shown
from instrumented_backend.views.deliver import show, write_page
from instrumented_backend.views.processes import nothing_observed, render_processes


class _Command(click.Command):
    """Tells `run -- NAME` from `run NAME`, and leaves a module its own ``--``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta["as a shell"] = args[:1] == ["--"]
        if args[:1] == ["-m"] and len(args) > 1:
            args = [*args[:2], "--", *args[2:]]
        return super().parse_args(ctx, args)


@click.command(
    "run",
    cls=_Command,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option("-m", "module", metavar="MODULE", help="Run a module, as python -m does.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[COMMAND] [ARGS]...")
@click.pass_context
def command(ctx: click.Context, module: str | None, arguments: tuple[str, ...]) -> None:
    """Run a command with this backend in Inductor's place, unchanged.

    Every torch.compile in it that names no backend, or Inductor, goes through this one, in the
    processes that it starts, too. COMMAND is a Python file, or anything that a shell would find.
    stdin, terminal, output, signals and exit code are the command's. The report comes at the
    end: one for all processes.

    \b
        instrumented-backend run train.py --epochs 1
        instrumented-backend run -m package.train --epochs 1
        instrumented-backend run torchrun --nproc-per-node 8 train.py
        instrumented-backend run -- ./start.sh
    """
    chosen = settings.load()
    if module is None and not arguments:
        raise click.UsageError("name a COMMAND to run, or a module with -m")
    words = arguments if module is None else ("python", "-m", module, *arguments)
    try:
        if module is not None:
            found = program.python("-m", module, *arguments)
        elif ctx.meta["as a shell"]:
            found = program.command(arguments)
        else:
            found = program.named(arguments)
        if chosen.run is not None:  # inside of another `run`, which collects
            child.execute(found, os.environ)
        status = _run(found, chosen, shlex.join(words))
    except program.NoSuchProgram as error:
        click.echo(f"instrumented-backend: {error}", err=True)
        sys.exit(error.exit_code)
    child.end_as(status)


def _run(found: program.Program, chosen: settings.Settings, words: str) -> int:
    """How the program ended; by then its reports have been shown."""
    with tempfile.TemporaryDirectory(prefix="instrumented-", ignore_cleanup_errors=True) as folder:
        status = child.run(found, {**adopting(os.environ), settings.RUN: folder})
        try:
            _tell(Path(folder), chosen, words, failed=status != 0)
        except Exception as error:  # any: the exit code is the program's, whatever becomes of this
            said = " ".join(f"{type(error).__name__}: {error}".split())
            click.echo(f"instrumented-backend: lost: the report: {shown(said)}", err=True)
    return status


def _tell(folder: Path, chosen: settings.Settings, words: str, failed: bool) -> None:
    reports, torches = _collected(folder)
    if chosen.html is not None and reports:
        lost = write_page(reports, chosen.html)
        if lost is not None:
            click.echo(f"instrumented-backend: {lost}", err=True)
    if not chosen.tables:
        return
    if reports:
        show(render_processes(reports, words, chosen.tables, kept=chosen.dir is not None))
    elif not failed:  # else it is the failure that there is to say, and the program has said it
        show(nothing_observed(torches, chosen.disable))


def _collected(folder: Path) -> tuple[list[Report], int]:
    """The reports by rank and process, and how many processes had torch."""
    reports = []
    for path in find_reports(folder):
        try:
            reports.append(read_report(path))
        except ReportError as error:
            click.echo(f"instrumented-backend: {error}", err=True)
    return reports, len(list(folder.glob(f"{adoption.MARK}*")))
