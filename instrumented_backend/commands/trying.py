"""``instrumented-backend try``: a program with one change at a time, and what each wins."""

import math
import os
import re
import shlex
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from instrumented_backend.commands import program
from instrumented_backend.commands.adopting import adopting
from instrumented_backend.commands.layout import echo, format_option
from instrumented_backend.trials.changes import BY_NAME, CHANGES, Change

if TYPE_CHECKING:
    from instrumented_backend.records.trials import TrialRun
    from instrumented_backend.trials import runs
    from instrumented_backend.trials.plan import Plan

_MODULE_OF_LAUNCHER = frozenset({"-m", "--module"})
_SECONDS = {"s": 1, "m": 60, "h": 3600}


def _duration(ctx: click.Context, parameter: click.Parameter, value: str) -> float:
    """``10m``, ``90s``, ``1.5h`` or a plain number, in seconds."""
    found = re.fullmatch(r"(\d+\.?\d*)([smh]?)", value.strip())
    seconds = float(found[1]) * _SECONDS[found[2] or "s"] if found else 0.0
    if not 0 < seconds < math.inf:
        raise click.BadParameter(f"{value!r} is no time; give 90s, 10m or 1h")
    return seconds


class _Command(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """What follows a module's name is the module's, as what follows a program is."""
        options = [param for param in self.params if isinstance(param, click.Option)]
        with_value = {name for option in options if not option.is_flag for name in option.opts}
        place = 0
        while place < len(args) and args[place].startswith("-") and args[place] != "--":
            word = args[place]
            place += 2 if word in with_value else 1
            if word == "-m":
                args = [*args[:place], "--", *args[place:]]
                break
        return super().parse_args(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Changes"):
            formatter.write_dl([(change.name, change.line) for change in CHANGES])


@click.command("try", cls=_Command, context_settings={"allow_interspersed_args": False})
@click.option("-m", "module", metavar="MODULE", help="Try a module, as python -m runs it.")
@click.option(
    "--only",
    multiple=True,
    type=click.Choice(list(BY_NAME)),
    metavar="CHANGE",
    help="A change to try; repeatable.  [default: all]",
)
@click.option(
    "--steps",
    type=click.IntRange(min=5),
    help="Steps to measure in each run.  [default: those of 2 s]",
)
@click.option(
    "--budget",
    metavar="TIME",
    callback=_duration,
    default="10m",
    show_default=True,
    help="No run begins after that.",
)
@click.option(
    "--time-limit",
    metavar="TIME",
    callback=_duration,
    default="5m",
    show_default=True,
    help="A run that takes longer is killed.",
)
@click.option(
    "--share",
    "shared",
    multiple=True,
    type=Path,
    metavar="PATH",
    help="A file or folder here that the program needs; repeatable. With . runs start here.",
)
@format_option
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[PROGRAM] [ARGS]...")
def command(
    module: str | None,
    only: tuple[str, ...],
    steps: int | None,
    budget: float,
    time_limit: float,
    shared: tuple[Path, ...],
    layout: str,
    quote_formulas: bool,
    arguments: tuple[str, ...],
) -> None:
    """Run a program with one change at a time, unchanged itself, and tell what each change wins.

    The program as it is and each change run in turn, until the differences are clear or the
    budget is spent. A step ends with an optimizer's step or, in a program without one, with a
    call of what was compiled; nothing has to be marked. A run ends as soon as its steps are
    measured, without what the program would do at its end.

    \b
        instrumented-backend try train.py --epochs 1
        instrumented-backend try --only dynamic --budget 5m train.py
        instrumented-backend try --share data -m package.train
        instrumented-backend try torchrun --nproc-per-node 2 train.py

    Each run starts in an empty folder, so that checkpoints and logs with relative names go there,
    and are deleted. What the program reads by relative names has to be named with --share: it is
    linked, and what is written there stays. Environment, home folder and absolute paths are the
    program's own. stdin is empty.

    The exit code is 1 where the program as it is fails, 130 after Ctrl-C, which prints what is
    known so far.
    """
    from instrumented_backend.trials import runs
    from instrumented_backend.trials.course import BaselineError
    from instrumented_backend.views.trials import TrialView

    if module is None and not arguments:
        raise click.UsageError("name a PROGRAM to try, or a module with -m")
    here = Path.cwd()
    words = arguments if module is None else ("-m", module, *arguments)
    run, has_module = _words(module, arguments)
    tried = runs.Program(
        run,
        _environment(here if has_module else None),
        [_inside(here, path) for path in shared],
        here,
    )
    changes = [BY_NAME[name] for name in dict.fromkeys(only)] or list(CHANGES)
    try:
        result = _run(tried, changes, shlex.join(words), steps, budget, time_limit)
    except BaselineError as error:
        click.echo(f"instrumented-backend: the program as it is: {error}", err=True)
        if here not in tried.shared:
            click.echo("each run starts in an empty folder; see --share", err=True)
        sys.exit(1)
    if result.step_s is not None or not result.interrupted:
        echo(TrialView(result), layout, quote_formulas)
    if result.interrupted:
        raise click.Abort


def _run(
    tried: "runs.Program",
    changes: list[Change],
    words: str,
    steps: int | None,
    budget_s: float,
    limit_s: float,
) -> "TrialRun":
    """Raises `BaselineError`."""
    from instrumented_backend.trials import runs
    from instrumented_backend.trials.course import Course

    with runs.folder_of_trial() as folder:

        def run(asked: "Plan", caches: str) -> "runs.Outcome":
            return runs.run(tried, asked, folder / caches, folder, limit_s)

        course = Course(
            run,
            changes,
            budget_s=budget_s,
            steps=steps,
            clock=time.monotonic,
            progress=_progress(budget_s),
        )
        interrupted = False
        # Else the caches would stay.
        before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        try:
            course.run()
        except KeyboardInterrupt:
            interrupted = True
        finally:
            signal.signal(signal.SIGTERM, before)
            _say("")
        return course.result(words, interrupted)


def _progress(budget_s: float) -> Callable[[str], None]:
    """One line on a terminal, which each run writes anew."""
    from instrumented_backend.views.trials import progress_text

    began = time.monotonic()
    return lambda what: _say(progress_text(time.monotonic() - began, budget_s, what))


def _say(line: str) -> None:
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{line}", nl=False, err=True)


def _words(module: str | None, arguments: tuple[str, ...]) -> tuple[tuple[str, ...], bool]:
    """The program by its absolute path, and a launcher's: it starts in another folder.

    And whether a module is named, which Python would look for in this one.
    """
    if module is not None:
        return program.python("-m", module, *arguments).arguments, True
    name = os.path.abspath(arguments[0]) if os.path.exists(arguments[0]) else arguments[0]
    try:
        found = program.named((name, *arguments[1:]))
    except program.NoSuchProgram as error:
        click.echo(f"instrumented-backend: {error}", err=True)
        sys.exit(error.exit_code)
    path, words = found.path, found.arguments[1:]
    if found.arguments[0] != name:  # Python runs it
        return (path, *words), False
    return (path, *map(_of_launcher, words)), not _MODULE_OF_LAUNCHER.isdisjoint(words)


def _of_launcher(word: str) -> str:
    """The program that it starts: ``torchrun train.py``, ``python train.py``."""
    is_program = word.endswith(program.PYTHON) and os.path.isfile(word)
    return os.path.abspath(word) if is_program else word


def _environment(modules: Path | None) -> dict[str, str]:
    """``modules`` is where Python would look for a module first."""
    environ = adopting(os.environ)
    paths = [os.path.abspath(path) for path in environ.get("PYTHONPATH", "").split(":") if path]
    if modules is not None:
        paths.append(str(modules))
    return {**environ, "PYTHONPATH": ":".join(paths)} if paths else environ


def _inside(here: Path, path: Path) -> Path:
    found = Path(os.path.abspath(path))
    if not found.is_relative_to(here):
        raise click.UsageError(f"--share {path}: not in this folder; its absolute path is shared")
    if not found.exists():
        raise click.UsageError(f"--share {path}: no such file or folder")
    return found
