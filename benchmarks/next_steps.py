"""The bound that is told of a change, against what the change wins when it is made.

    python benchmarks/next_steps.py                              # 10 minutes: 12 programs
    python benchmarks/next_steps.py --only printing --runs 2     # half a minute
    python benchmarks/next_steps.py --device cuda --json rows.json  # and two of GPUs alone

Each program is known to have one best change (`next_programs/catalogue.py`). It runs once with the
backend, which says what to do next and what that wins at most. Then it runs as it is and changed,
in turn, under plain Inductor and by its own clock: what it wins is the difference. Caches are warm,
but where a warm cache is the change.

On a machine that others use, too, `--clock cpu` compares CPU time: bounds are then taken by the
part of its time in which the program had a CPU. It is for programs that compute all the time. That
part is a mean: a gain is over its bound only where it is over the wall time that was told. Programs
compute on one thread.

Exit code 1 if a gain is a loss, or is over its bound; if the best change is first in fewer than ten
of twelve programs; if fewer than 80 % of the bounds are within twice the gain; or if a change
changes a program's result. A spread is two standard errors. A bound is of one run, and such runs
differ, too: that is added to the spread where a gain is over its bound. Ctrl-C prints what was
measured until then.
"""

import json
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from next_programs import running
from next_programs.catalogue import PROGRAMS, Known
from proof import forked
from proof.figures import measured
from tabulate import tabulate

FIRST, WITHIN_TWICE = 10 / 12, 0.8  # of the programs
TWICE = 2.0
SAME = 1e-3  # of the result


@dataclass
class Row:
    """One program. Gains are of a run, from the first `torch.compile` on."""

    program: str
    expected: str | None  # code of the step for the best change; None: there is none
    first: str | None  # that is told first, trials apart
    bound_s: float | None  # of the expected step
    gain_s: float | None
    spread_s: float
    same: bool  # the changed program's result
    is_trial: bool = False  # only a trial tells what is won: no bound is told
    run_spread_s: float = 0.0  # of one run as it is, such as the one that told the bound
    most_s: float | None = None  # what the bound is by the other clock, if by that it is more

    @property
    def is_first(self) -> bool:
        return self.first == self.expected

    @property
    def ok(self) -> bool:
        """Is the gain under the bound and no loss, and is nothing said where nothing helps?"""
        if self.gain_s is None:
            return self.is_first
        if not self.same or self.bound_s is None or self.gain_s + self.spread_s < 0:
            return False
        spread_s = math.hypot(self.spread_s, self.run_spread_s)
        return self.gain_s - spread_s <= max(self.bound_s, self.most_s or 0.0)

    @property
    def is_tight(self) -> bool | None:
        """None where there is no gain that could be told from none."""
        if self.is_trial or self.gain_s is None or self.gain_s <= self.spread_s:
            return None
        return self.bound_s is not None and self.bound_s <= TWICE * (self.gain_s + self.spread_s)

    @property
    def cells(self) -> list[str]:
        figures = [
            "-" if value is None else f"{value:.2f}" for value in (self.bound_s, self.gain_s)
        ]
        return [
            *(self.program, self.expected or "-", self.first or "-", *figures),
            f"{self.spread_s:.2f}",
            {None: "-", True: "yes", False: "no"}[self.is_tight],
            "ok" if self.ok and self.is_first else "OFF",
        ]


HEADERS = ("program", "best change", "told first", "at most", "gained", "±", "within 2x", "")


@click.command(epilog=f"Programs: {', '.join(PROGRAMS)}.")
@click.option("--only", type=click.Choice(list(PROGRAMS)), multiple=True, metavar="PROGRAM")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
@click.option("--runs", default=4, show_default=True, type=click.IntRange(2), help="Of each.")
@click.option("--clock", type=click.Choice(["wall", "cpu"]), default="wall", show_default=True)
@click.option("--json", "json_path", type=Path, help="Write the rows there as well.")
def main(only: tuple[str, ...], device: str, runs: int, clock: str, json_path: Path | None) -> None:
    """Compare bounds with gains; exit code 1 if one is off."""
    import torch

    names = [name for name, known in PROGRAMS.items() if device == "cuda" or not known.needs_cuda]
    if lost := [name for name in only if name not in names]:
        raise click.UsageError(f"--device cuda is for {', '.join(lost)}")
    with tempfile.TemporaryDirectory() as folder:
        rows, interrupted = measured(_rows(only or names, device, runs, clock, folder))
    if interrupted:
        click.echo("interrupted: what was measured until then", err=True)
    click.echo(tabulate([row.cells for row in rows], headers=HEADERS, disable_numparse=True))
    click.echo(
        f"torch {torch.__version__}, {device}, {os.cpu_count()} CPUs, {runs} runs of each, "
        f"{clock} time"
    )
    if json_path is not None:
        json_path.write_text(json.dumps([{**asdict(row), "ok": row.ok} for row in rows], indent=1))
    sys.exit(130 if interrupted else exit_code(rows))


def exit_code(rows: Sequence[Row]) -> int:
    """The docstring of this module says when it is 1."""
    tight = [row.is_tight for row in rows if row.is_tight is not None]
    return int(
        not rows
        or not all(row.ok for row in rows)
        or sum(row.is_first for row in rows) < FIRST * len(rows)
        or sum(tight) < WITHIN_TWICE * len(tight)
    )


def _rows(names: Sequence[str], device: str, runs: int, clock: str, folder: str) -> Iterator[Row]:
    for name in names:
        known = PROGRAMS[name]
        caches = iter(f"{folder}/{name}{number}" for number in range(runs + 2))
        warm = next(caches)
        if not known.cold:
            _run(running.timed, name, False, device, cache=warm)
            _run(running.timed, name, True, device, cache=warm)
        said = _run(running.told, name, device, cache=warm)
        pairs = []
        for _ in range(runs if known.code else 0):
            # A cold run is the first with its cache, a warm one the second.
            cache = next(caches) if known.cold else warm
            pairs.append(
                [
                    _run(running.timed, name, changed, device, cache=cache)
                    for changed in (False, True)
                ]
            )
        row = row_of(name, known, clock, said, pairs)
        click.echo(", ".join(row.cells), err=True)
        yield row


def _run(function: Any, *arguments: Any, cache: str) -> Any:
    return forked.call(function, *arguments, TORCHINDUCTOR_CACHE_DIR=cache)


def row_of(
    name: str,
    known: Known,
    clock: str,
    said: dict[str, Any],
    pairs: list[list[dict[str, Any]]],
) -> Row:
    """``said`` and the ``pairs`` are what `running.py` returns; ``clock`` is "wall" or "cpu".

    The first step is of those that are known; where only a trial tells, of all.
    """
    steps = [step for step in said["steps"] if known.is_trial or step["known"] != "trial"]
    first, code = steps[0]["code"] if steps else None, known.code
    running = said[clock] / said["wall"]
    wall = _together([step["bound_s"] for step in said["steps"] if step["code"] == code])
    gains = [before[clock] - after[clock] for before, after in pairs]
    as_it_is = [before[clock] for before, _ in pairs]
    return Row(
        *(name, code, first),
        bound_s=None if wall is None else running * wall,
        gain_s=statistics.median(gains) if gains else None,
        spread_s=2 * statistics.stdev(gains) / math.sqrt(len(gains)) if len(gains) > 1 else 0.0,
        run_spread_s=2 * statistics.stdev(as_it_is) if len(as_it_is) > 1 else 0.0,
        same=all(
            math.isclose(run["result"], said["result"], rel_tol=SAME)
            for pair in pairs
            for run in pair
        ),
        is_trial=known.is_trial,
        most_s=wall,
    )


def _together(bounds: Sequence[float]) -> float | None:
    """A change may be one for several places: the sum of what each wins at most."""
    return sum(bounds) if bounds else None


if __name__ == "__main__":
    main()
