"""The commands: ``instrumented-backend demo | run | show | report | top | ...``.

Each has a file of its own. What only one command needs is imported when it runs, so that the others
start as fast as they can.
"""

import errno
import io
import sys

import click

from instrumented_backend import __version__, settings
from instrumented_backend.commands import (
    bench,
    check,
    demo,
    diff,
    kernels,
    report,
    run,
    show,
    top,
    trace,
    trying,
)
from instrumented_backend.records.escapes import shown

MAX_MESSAGE = 4_000  # characters of what went wrong


class _Commands(click.Group):
    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Environment variables"):
            formatter.write_dl(
                [
                    (variable.name, f"{variable.meaning} [default: {variable.default or 'empty'}]")
                    for variable in settings.VARIABLES
                ],
                col_max=len("INSTRUMENTED_DEVICE_TIME"),
            )


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def cli() -> None:
    """torch.compile(model, backend="instrumented"): Inductor, and a report of what it did.

    The report comes at the end of any program that uses the backend. These commands try it
    out, run a program that does not name it, and print a saved report again.
    """


for _module in (demo, run, trying, show, report, top, diff, check, kernels, bench, trace):
    cli.add_command(_module.command)


def _write_anything() -> None:
    """Characters that a terminal's encoding has not got are shown as escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def _one_line(message: str) -> str:
    """A field of a file may be in it, as long as the file: then its middle is left out."""
    half = MAX_MESSAGE // 2
    is_short = len(message) <= MAX_MESSAGE
    return shown(message if is_short else f"{message[:half]} ... {message[-half:]}")


def main() -> None:
    """The console script."""
    _write_anything()
    try:
        result = cli.main(standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(2)
    except (click.ClickException, settings.SettingsError) as error:
        message = error.format_message() if isinstance(error, click.ClickException) else error
        click.echo(f"instrumented-backend: {_one_line(str(message))}", err=True)
        sys.exit(2)
    except click.Abort:
        sys.exit(130)
    except OSError as error:
        if error.errno != errno.ENOSPC or error.filename is not None:
            raise
        click.echo(f"instrumented-backend: cannot write the output: {error.strerror}", err=True)
        sys.exit(2)
    if isinstance(result, int):
        sys.exit(result)
