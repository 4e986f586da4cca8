"""``instrumented-backend top``: programs watched while they run."""

import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from instrumented_backend.commands import processes
from instrumented_backend.commands.targets import NoTarget, Target, target

if TYPE_CHECKING:
    from instrumented_backend.commands.terminal import Terminal
    from instrumented_backend.records.follow import FollowedReport
    from instrumented_backend.views.top.watched import Watched

LOOK_S = 0.25  # between looks at the files, for a screen
LINES_LOOK_S = 1.0  # for lines: what happens to several ranks is one
STATUS_S = 10.0  # between lines that say how far the processes are


@click.command("top")
@click.argument("what", required=False, metavar="[DIR|PID]")
def command(what: str | None) -> None:
    """Watch programs while they run: what is compiled now, and why, and how fast they are.

    DIR is the folder that the programs have in INSTRUMENTED_DIR, on any machine that sees it; by
    default, the one in INSTRUMENTED_DIR here, or the current folder. PID is a process with
    INSTRUMENTED_DIR in its environment, such as torchrun: it is watched with all that it starts.

    \b
        INSTRUMENTED_DIR=/tmp/run python train.py &
        instrumented-backend top /tmp/run

    Only the reports are read that the programs keep current there; nothing is asked of the
    programs. A file is as old as the screen says.

    Without a terminal, it prints a line for each thing that happens, one each 10 s for how far the
    programs are, and ends when they have.
    """
    # Not before the command is asked for: the others need neither rich nor msgspec.
    from instrumented_backend.records.follow import Follower
    from instrumented_backend.views.top.watched import Watched

    try:
        found = target(what)
    except NoTarget as error:
        raise click.UsageError(str(error)) from None
    watched = Watched(found.name, Follower(found.paths, processes.is_alive))
    if sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown"):
        _on_screen(watched)
    else:
        _in_lines(watched, found)


def _on_screen(watched: "Watched") -> None:
    from instrumented_backend.commands.terminal import Killed, Terminal

    try:
        with Terminal() as terminal:
            _draw(watched, terminal)
    except Killed as killed:
        signal.signal(killed.number, signal.SIG_DFL)
        os.kill(os.getpid(), killed.number)


def _draw(watched: "Watched", terminal: "Terminal") -> None:
    from instrumented_backend.views.top.screen import picture

    chosen: Path | None = None
    while True:
        watched.look()
        number = _number(watched.reports, chosen)
        width, height = terminal.size()
        keys, utf8 = terminal.has_keys, terminal.utf8
        terminal.show(picture(watched, width, height, number, keys, utf8))
        for key in terminal.wait(0.0 if watched.waiting else LOOK_S):
            if key == "quit":
                return
            page = max(1, height // 3)
            number += {"up": -1, "down": 1, "page up": -page, "page down": page}[key]
            number = min(max(0, number), max(0, len(watched.reports) - 1))
            chosen = watched.reports[number].path if watched.reports else None


def _number(reports: "Sequence[FollowedReport]", chosen: Path | None) -> int:
    """The chosen process's position in the list; the first one's where it is gone."""
    return next((i for i, each in enumerate(reports) if each.path == chosen), 0)


def _in_lines(watched: "Watched", found: Target) -> None:
    from instrumented_backend.views.top.lines import event_line, nothing_yet, status_line

    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    said_s, said = time.monotonic(), ""
    while True:
        for event in watched.look():
            click.echo(event_line(event, watched))
        if not watched.reports and (words := nothing_yet(watched)) != said:
            said = words
            click.echo(words)
        if found.is_over() or watched.all_have_ended():
            return
        if watched.reports and watched.now_s - said_s >= STATUS_S:
            said_s = watched.now_s
            click.echo(status_line(watched))
        if not watched.waiting:
            time.sleep(LINES_LOOK_S)
