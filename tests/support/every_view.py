"""Every command that reads saved reports, run on one, in this process."""

import io
import os
from collections.abc import Iterator
from pathlib import Path

from calling import call, is_one_line
from rich.console import Console

from instrumented_backend.commands import processes
from instrumented_backend.commands.targets import target
from instrumented_backend.compare.figures import FIGURES
from instrumented_backend.records.follow import Follower
from instrumented_backend.views.top.lines import event_line, nothing_yet, status_line
from instrumented_backend.views.top.screen import picture
from instrumented_backend.views.top.watched import Watched

# Each figure is missed, so that all causes are drawn.
_MISSED = [
    word
    for figure in FIGURES.values()
    for word in ("--limit", f"{figure.name}={'100' if figure.at_least else '0'}")
]


def commands(report: Path, other: Path, folder: Path) -> Iterator[list[str]]:
    """``other`` is what it is compared with; what is written goes into ``folder``."""
    yield ["show", str(report), "--tables", "all"]
    yield ["report", str(report), "-o", str(folder / "page.html")]
    yield ["diff", str(report), str(other)]
    for layout in ("text", "json", "markdown", "html"):
        yield ["diff", str(other), str(report), "--format", layout]
    for layout in ("text", "junit", "sarif", "github"):
        yield ["check", str(report), "--explain", "--format", layout, *_MISSED]
    baseline = str(folder / "baseline.json")
    yield ["check", str(report), "--baseline", baseline, "--update"]
    yield ["check", str(report), "--baseline", baseline]


def run(arguments: list[str]) -> str:
    """What it prints: a view, or the one line that refuses."""
    done = call(*arguments)
    if done.returncode == 2:
        assert is_one_line(done), (arguments, done.stderr)
        return done.stderr.removeprefix("instrumented-backend: ").rstrip("\n")
    assert done.returncode in (0, 1), arguments
    return done.stdout


def watch(path: Path) -> str:
    """What `top` shows of it, as lines and as a picture."""
    known = target(str(path))
    return looked_at(Watched(known.name, Follower(known.paths, processes.is_alive)))


def looked_at(watched: Watched) -> str:
    lines = [event_line(event, watched) for event in watched.look()]
    lines.append(status_line(watched) if watched.reports else nothing_yet(watched))
    text = io.StringIO()
    Console(file=text, width=80, height=24).print(picture(watched, 80, 24))
    return os.linesep.join([*lines, text.getvalue()])
