"""``instrumented-backend run``: an unchanged program with this backend."""

import os
from pathlib import Path

import click

from instrumented_backend import settings
from instrumented_backend.commands.script import Script


@click.command(
    "run",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option("-m", "module", metavar="MODULE", help="Run a module, as python -m does.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[SCRIPT] [ARGS]...")
def command(module: str | None, arguments: tuple[str, ...]) -> Script:
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
    if not os.path.exists(path):
        raise click.BadParameter(f"{path}: no such file", param_hint="SCRIPT")
    return Script(module=None, path=path, arguments=arguments[1:])
