"""Do two runs of `instrumented-backend try` agree? The same trial, again and again.

    python benchmarks/same_trials.py                       # an hour on two cores: 20 runs
    python benchmarks/same_trials.py --pairs 1             # five minutes
    python benchmarks/same_trials.py --at-once 8           # on sixteen cores or more

A run tries two changes of one short training: an optimizer that is fused, which helps, and dynamic
shapes, which make next to no difference. Runs are compared two by two. Two figures agree where
their 95 % intervals overlap; a change without an interval agrees with nothing. With ``--at-once``
that many runs go on side by side, each on cores of its own.

The exit code is 1 if fewer than 19 of 20 agree. Ctrl-C prints what was run until then.
"""

import json
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from proof.figures import measured
from tabulate import tabulate

CHANGES = ("fused-optimizer", "dynamic")
AGREE = 19 / 20

# All that is compiled are calls of a library: no run waits for a compiler of C++.
PROGRAM = """
    import torch
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(12)])
    step = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    batch = torch.randn(32, 64)
    for _ in range(100_000):
        loss = step(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""


@dataclass
class SpeedUp:
    ratio: float
    low: float | None
    high: float | None
    pairs: int

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.ratio:.3f} ({self.pairs} pairs)"
        return f"{self.ratio:.3f} ({self.low:.3f} … {self.high:.3f})"


@dataclass
class Row:
    """One change in two runs; None where a run has no speed-up of it."""

    change: str
    first: SpeedUp | None
    second: SpeedUp | None

    @property
    def ok(self) -> bool:
        one, other = self.first, self.second
        if one is None or other is None:
            return False
        if one.low is None or one.high is None or other.low is None or other.high is None:
            return False
        return one.low <= other.high and other.low <= one.high

    @property
    def cells(self) -> list[str]:
        return [
            self.change,
            str(self.first or "-"),
            str(self.second or "-"),
            "ok" if self.ok else "OFF",
        ]


def exit_code(rows: Sequence[Row]) -> int:
    """The docstring of this module says when it is 1."""
    return int(not rows or sum(row.ok for row in rows) < AGREE * len(rows))


def tried(program: Path, budget: str, cores: set[int]) -> dict[str, SpeedUp]:
    """One run of `try`; raises ClickException where it fails."""
    command = [sys.executable, "-m", "instrumented_backend", "try", "--format", "json"]
    command += [f"--only={change}" for change in CHANGES]
    done = subprocess.run(
        ["taskset", "-c", ",".join(map(str, sorted(cores))), *command, "--budget", budget, program],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise click.ClickException(f"a trial failed:\n{done.stderr}")
    return {
        trial["change"]: SpeedUp(**trial["speed_up"])
        for trial in json.loads(done.stdout)["trials"]
        if trial["speed_up"] is not None
    }


def pairs_of(pairs: int, at_once: int, budget: str, program: Path) -> Iterator[Row]:
    cores = sorted(os.sched_getaffinity(0))
    share = len(cores) // at_once
    free = [set(cores[i * share : (i + 1) * share]) for i in range(at_once)]

    def run(_: int) -> dict[str, SpeedUp]:
        mine = free.pop()
        try:
            return tried(program, budget, mine)
        finally:
            free.append(mine)

    with ThreadPoolExecutor(at_once) as pool:
        runs = pool.map(run, range(2 * pairs))
        for first in runs:
            second = next(runs)
            for change in CHANGES:
                yield Row(change, first.get(change), second.get(change))


@click.command(help=__doc__)
@click.option("--pairs", default=10, show_default=True, type=click.IntRange(1), help="Of runs.")
@click.option("--at-once", default=1, show_default=True, type=click.IntRange(1), help="Runs.")
@click.option("--budget", default="5m", show_default=True, help="Of one run.")
@click.option("--json", "output", type=Path, help="Write the rows there as well.")
def main(pairs: int, at_once: int, budget: str, output: Path | None) -> None:
    if at_once > len(os.sched_getaffinity(0)):
        raise click.UsageError(f"--at-once {at_once}: more than the cores")
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "train.py")
        program.write_text(textwrap.dedent(PROGRAM))
        rows, interrupted = measured(pairs_of(pairs, at_once, budget, program))
    if interrupted:
        click.echo("interrupted: what was run until then", err=True)
    headers = ("change", "speed-up", "and again", "")
    click.echo(tabulate([row.cells for row in rows], headers, disable_numparse=True))
    click.echo(f"{sum(row.ok for row in rows)} of {len(rows)} agree")
    if output is not None:
        output.write_text(json.dumps([{**asdict(row), "ok": row.ok} for row in rows], indent=1))
    sys.exit(130 if interrupted else exit_code(rows))


if __name__ == "__main__":
    main()
