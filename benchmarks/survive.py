"""What is left of the report of programs that are killed: SIGKILL at random moments, and worse.

    python benchmarks/survive.py                # 200 times SIGKILL, and each other ending 5 times
    python benchmarks/survive.py --kills 20     # to try it

Each program is forked from one that has torch. It compiles again and again, trains in between, and
notes each call before it makes it: what its file says must never be more, and at most what was
there before the file's promise (10 s, or 1 % of the run) less. In half of the runs snapshots are
written without a pause, so that many are killed while they write.
"""

import ctypes
import itertools
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import click

PROMISE_S, PROMISE_SHARE = 10.0, 0.01
SLACK_S = 2.0  # this machine may have been busy
SHORT_S, LONG_S = 3.0, 30.0


def _out_of_memory() -> None:
    """As where a limit ends the program: what it asks for is refused, and nobody catches that."""
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    held = []
    try:
        while True:
            held.append(bytearray(1 << 24))
    except MemoryError:
        os.kill(os.getpid(), signal.SIGKILL)


ENDINGS: dict[str, Callable[[], object]] = {
    "os._exit": lambda: os._exit(7),
    "os.abort": os.abort,
    "segfault": lambda: ctypes.string_at(0),
    "out of memory": _out_of_memory,
}
LAST = "its own end, after all of these"


@dataclass
class Result:
    """Of all runs of one kind of ending."""

    what: str
    runs: int = 0
    with_file: int = 0
    oldest_s: float = 0.0  # how far a file was behind its program
    parts: int = 0  # files that were being written
    wrong: list[str] = field(default_factory=list)


class Truth:
    """Calls that were about to be made, and when: read by the parent after the program's death."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

    def add(self, calls: int) -> None:
        os.write(self._file, f"{time.time()} {calls}\n".encode())

    @staticmethod
    def read(path: Path) -> list[tuple[float, int]]:
        lines = path.read_text().splitlines() if path.exists() else []
        pairs = (line.split() for line in lines)
        return [(float(pair[0]), int(pair[1])) for pair in pairs if len(pair) == 2]


def program(seconds: float, busy: bool, truth: Truth, ending: Callable[[], object]) -> None:
    """In the child: compiles about twice a second, and trains."""
    import torch

    import instrumented_backend.observe.snapshots as snapshots

    if busy:
        snapshots.SOON_S, snapshots.BUSY_SHARE = 0.0, 1.0
        snapshots.FIRST_INTERVAL_S = snapshots.LONGEST_INTERVAL_S = 0.001
        snapshots.LONGEST_SHARE = 0.0
    weight = torch.ones(3, requires_grad=True)
    scale = [0]

    def step(x: torch.Tensor) -> torch.Tensor:
        return ((x * weight) @ weight * scale[0]).sum()

    compiled = torch.compile(step, backend="instrumented", dynamic=False)
    end = time.monotonic() + seconds
    calls = 0
    while time.monotonic() < end:
        if scale[0] < 6 and calls % 50 == 0:
            scale[0] += 1
        calls += 1
        truth.add(calls)
        compiled(torch.ones(4, 3)).backward()
        time.sleep(0.002)
    ending()


@dataclass
class Run:
    """One program that is no more."""

    pid: int
    ended_at: float
    truth: list[tuple[float, int]]


def check(folder: Path, run: Run, result: Result) -> None:
    """What the file says against what the program had noted."""
    from instrumented_backend.records import ReportError, read_report

    result.runs += 1
    result.parts += len(list(folder.glob(f".*.pid{run.pid}.*.part")))
    made = run.truth[-1][1] if run.truth else 0
    path = folder / f"report.rank0.pid{run.pid}.json"
    if not path.exists():
        if run.truth and run.ended_at - run.truth[0][0] > PROMISE_S + SLACK_S:
            result.wrong.append("no file")
        return
    result.with_file += 1
    try:
        report = read_report(path)
    except ReportError as error:
        result.wrong.append(str(error))
        return
    calls = report.summary.graph_calls
    if calls > made or report.summary.backward_calls > made:
        result.wrong.append(f"{path.name}: {calls} calls of {made}")
    # Until when the file knows of all calls.
    missed = next((at for at, number in run.truth if number > calls), run.ended_at)
    behind_s = max(0.0, run.ended_at - missed)
    result.oldest_s = max(result.oldest_s, behind_s)
    if behind_s > max(PROMISE_S, PROMISE_SHARE * (report.run.wall_s or 0.0)) + SLACK_S:
        result.wrong.append(f"{path.name}: {behind_s:.1f} s behind")


def one(
    folder: Path, seconds: float, busy: bool, ending: Callable[[], object], kill: bool
) -> Run | None:
    """A program from its start to its end; None in the program itself."""
    noted = folder.with_suffix(".truth")
    noted.unlink(missing_ok=True)
    pid = os.fork()
    if pid == 0:
        os.environ["INSTRUMENTED_DIR"] = str(folder)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        program(seconds, busy, Truth(noted), ending)
        return None
    if kill:
        while not noted.exists():
            time.sleep(0.01)
        # From its first compilation to after its last line.
        time.sleep(random.uniform(0, 1.2) * seconds)
        ended_at = time.time()
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    else:
        os.waitpid(pid, 0)
        ended_at = time.time()
    return Run(pid, ended_at, Truth.read(noted))


def _warm_up() -> None:
    """Half of what a first compilation takes is imports: before the programs are forked."""
    import torch
    import torch._inductor.config

    torch._inductor.config.compile_threads = 1  # a pool of processes must not be forked
    torch.compile(lambda x: x.sin(), backend="inductor")(torch.ones(3))
    torch._dynamo.reset()


@click.command()
@click.option("--kills", default=200, show_default=True, help="By SIGKILL, at random moments.")
@click.option("--others", default=5, show_default=True, help="Of each other ending.")
@click.option("--long", "long_runs", default=4, show_default=True, help=f"Kills in {LONG_S:g} s.")
@click.option("--seed", default=0, show_default=True)
def main(kills: int, others: int, long_runs: int, seed: int) -> None:
    """Kill programs; exit code 1 where a file is broken, wrong, or too old."""
    os.environ["INSTRUMENTED_TABLES"] = "none"
    _warm_up()
    random.seed(seed)
    base = Path(tempfile.mkdtemp(prefix="survive-"))
    folder = base / "reports"
    plan = [("SIGKILL", SHORT_S)] * kills + [("SIGKILL, long", LONG_S)] * long_runs
    plan += [(name, SHORT_S) for name in ENDINGS for _ in range(others)]
    plan += [(LAST, SHORT_S)]
    results: dict[str, Result] = {}
    with click.progressbar(plan, label="runs", file=sys.stderr) as bar:
        for (what, seconds), busy in zip(bar, itertools.cycle((True, False)), strict=False):
            ending = ENDINGS.get(what, lambda: None)
            kill = what.startswith("SIGKILL")
            busy = busy and seconds == SHORT_S and what != LAST
            run = one(folder, seconds, busy, ending, kill)
            if run is None:
                return  # in the program, which ends as any other
            check(folder, run, results.setdefault(what, Result(what)))
    left = [path.name for path in folder.glob(".*")]
    results[LAST].wrong += [f"left there: {name}" for name in left]
    shutil.rmtree(base, ignore_errors=True)
    for result in results.values():
        click.echo(
            f"{result.what}: {result.runs} runs, {result.with_file} with a file, "
            f"{result.parts} killed while writing, at most {result.oldest_s:.1f} s behind, "
            f"{len(result.wrong)} wrong"
        )
        for line in result.wrong:
            click.echo(f"  {line}")
    sys.exit(any(result.wrong for result in results.values()))


if __name__ == "__main__":
    main()
