"""How long the live view takes to show something, in a terminal."""

import fcntl
import json
import os
import pty
import select
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from instrumented_backend.records import Compiling, Report, read_report
from instrumented_backend.records.whole_file import write_whole
from proof.ends import python
from proof.figures import Cost, cost_of

SAMPLE = Path(__file__).parents[2] / "tests" / "data" / "reports" / "training.json"
START_LIMIT_MS = 1000.0
# A compilation is to be seen within 1 s: for 0.3 s of it, the program waits with its snapshot.
SEEN_LIMIT_MS = 700.0
STEP_LIMIT_US = 10.0
FIGURES_LIMIT_MS = 100.0  # and no oftener than each 1,000 times as long
PATIENCE_S = 60.0
FIGURES = """
    import json, statistics, time, torch
    from instrumented_backend import backend
    from instrumented_backend.integrations.current import Figures
    def times(function, number):
        taken = []
        for _ in range(number):
            start = time.perf_counter()
            function()
            taken.append(time.perf_counter() - start)
        return statistics.median(taken)
    for i in range(100):
        torch._dynamo.reset()
        torch.compile(lambda x: x + 1, backend="instrumented")(torch.ones(2))
    figures = Figures("")
    assert figures.new()["graphs"] == 100
    whole = times(lambda: backend.metrics(""), 5)
    print(json.dumps([1e6 * times(figures.new, 10_000), 1e3 * whole]))
"""
SIZE = struct.pack("HHHH", 40, 120, 0, 0)


def live(pairs: int) -> list[Cost]:
    """From the command's start to its picture, and from a report to the picture of it."""
    starts, seen = [], []
    for ranks in (1, 64):
        times = [_times(ranks) for _ in range(pairs)]
        starts.append(
            cost_of(f"top, {_words(ranks)}: its start", [t[0] for t in times], "ms", START_LIMIT_MS)
        )
        seen.append(
            cost_of(
                f"top, {_words(ranks)}: from a snapshot with a compilation to the screen",
                [t[1] for t in times],
                "ms",
                SEEN_LIMIT_MS,
            )
        )
    return starts + seen + _figures(pairs)


def _figures(pairs: int) -> list[Cost]:
    """Of the callbacks, in a training's own thread."""
    with tempfile.TemporaryDirectory() as cache:
        taken = [json.loads(python(FIGURES, cache=cache)) for _ in range(pairs)]
    return [
        cost_of("a callback at a step", [each[0] for each in taken], "µs", STEP_LIMIT_US),
        cost_of("figures, 100 graphs", [each[1] for each in taken], "ms", FIGURES_LIMIT_MS),
    ]


def _words(ranks: int) -> str:
    return "1 rank" if ranks == 1 else f"{ranks} ranks"


def _times(ranks: int) -> tuple[float, float]:
    """In milliseconds: to the first picture with the last rank in it; to a compilation."""
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(ranks):
            _keep(Path(folder), rank, [])
        whole = f"{ranks} running" if ranks > 1 else f"pid {1 << 22}"
        with _top(folder) as screen:
            start_s = time.perf_counter()
            _wait_for(screen, whole)
            started_s = time.perf_counter()
            time.sleep(0.1 + 0.9 * int.from_bytes(os.urandom(2)) / 65536)  # between any two looks
            for rank in range(ranks):
                _keep(Path(folder), rank, [Compiling("0/1", "seen_now", "a.py", 1, time.time())])
            kept_s = time.perf_counter()
            _wait_for(screen, "seen_now")
            return 1e3 * (started_s - start_s), 1e3 * (time.perf_counter() - kept_s)


def _keep(folder: Path, rank: int, compiling: list[Compiling]) -> None:
    report: Report = read_report(SAMPLE)
    report.run.rank, report.run.pid = rank, (1 << 22) + rank
    report.run.status, report.run.seen_at = "running", time.time()
    report.compiling = compiling
    write_whole(folder / f"report.rank{rank}.pid{report.run.pid}.json", report.to_json())


@contextmanager
def _top(folder: str) -> Iterator[int]:
    """The command in a terminal of its own, which is read by the descriptor."""
    child, screen = pty.fork()
    if child == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execv(sys.executable, [sys.executable, "-m", "instrumented_backend", "top", folder])
    fcntl.ioctl(screen, termios.TIOCSWINSZ, SIZE)
    try:
        yield screen
    finally:
        os.write(screen, b"q")
        while _read(screen):
            pass
        os.waitpid(child, 0)
        os.close(screen)


def _wait_for(screen: int, text: str) -> None:
    shown = ""
    end_s = time.monotonic() + PATIENCE_S
    while text not in shown:
        ready, _, _ = select.select([screen], [], [], end_s - time.monotonic())
        if not ready or not (new := _read(screen)):
            raise click.ClickException(f"top does not show {text!r}: {shown[-2000:]}")
        shown += new


def _read(screen: int) -> str:
    try:
        return os.read(screen, 65536).decode(errors="replace")
    except OSError:  # the terminal's other end is closed
        return ""
