"""How often the gate is wrong: unchanged programs run again, and `check` and `diff` are asked.

    python benchmarks/false_alarms.py                     # 100 reruns: 4 short programs, 25 each
    python benchmarks/false_alarms.py --reruns 5 --only gpt2
    python benchmarks/false_alarms.py --json rows.json

Of each program the first run is the baseline, which starts with empty caches. The last five reruns
(`--cold`) have empty caches, too; the others find what the first run left. Beside them, as many
processes as there are CPUs compute without a pause (`--busy`). Ops are observed in windows, as they
are by default. Each run is a fork of a process that has imported torch: that saves its seconds.

A rerun is an alarm where `check` misses a limit of the baseline, or `diff` calls a change worse.
What `check` leaves undecided is counted, and is none. The exit code is 1 if there is an alarm.
Ctrl-C prints what was run until then.
"""

import json
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import click
from proof import forked
from tabulate import tabulate

from instrumented_backend.compare.baseline import baseline_of
from instrumented_backend.compare.checking import MISSED, UNDECIDED, check
from instrumented_backend.compare.compare import compare
from instrumented_backend.compare.limits import Limits
from instrumented_backend.records import Report, find_reports, read_report
from instrumented_backend.views import diff

GATE = Path(__file__).parent / "gate"
SHORT = ("demo", "breaks", "inference", "optimizer")
PROGRAMS = {name: GATE / f"{name}.py" for name in (*SHORT, "gpt2", "convnext")}
# It ends with whoever started it.
BURN = "import os; p = os.getppid()\nwhile os.getppid() == p: sum(range(1000))"


@dataclass
class Row:
    program: str
    warm: int = 0
    cold: int = 0
    alarms: list[str] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)


def run(program: str, folder: Path, cache: Path) -> Report:
    """The program's report; raises ClickException where it fails."""
    variables = {"INSTRUMENTED_DIR": str(folder), "TORCHINDUCTOR_CACHE_DIR": str(cache)}
    forked.call(run_here, str(PROGRAMS[program]), **variables)
    (path,) = find_reports(folder)
    return read_report(path)


def run_here(script: str) -> None:
    sys.argv[:] = [script]
    runpy.run_path(script, run_name="__main__")


@contextmanager
def busy(processes: int) -> Iterator[None]:
    burning = [subprocess.Popen([sys.executable, "-c", BURN]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in burning:
            process.kill()
            process.wait()


def add_alarms(row: Row, first: Report, again: Report) -> None:
    findings = check(again, Limits(), baseline_of([first]).ranks["0"])
    for finding in findings:
        said = f"{finding.figure} {finding.baseline} → {finding.value}"
        if finding.status == MISSED:
            row.alarms.append(said)
        elif finding.status == UNDECIDED:
            row.undecided.append(said)
    row.alarms += [diff.headline(change) for change in compare(first, again).worse]


def try_instructions() -> None:
    """Of the CPU, as Inductor does where a cache folder is new: the same trials for each."""
    from torch._inductor.cpu_vec_isa import valid_vec_isa_list

    valid_vec_isa_list()


def empty_cache(base: Path, name: str) -> Path:
    trials = base / "trials"
    if not trials.exists():
        forked.call(try_instructions, TORCHINDUCTOR_CACHE_DIR=str(trials))
    return Path(shutil.copytree(trials, base / f"{name}.cache"))


def rerun(row: Row, first: Report, base: Path, number: int, is_cold: bool) -> None:
    program = row.program
    cache = empty_cache(base, f"{program}.{number}") if is_cold else base / f"{program}.cache"
    add_alarms(row, first, run(program, base / f"{program}.{number}", cache))
    row.cold += is_cold
    row.warm += not is_cold


def measure(rows: list[Row], count: int, cold: int, base: Path) -> None:
    """In turns, so that Ctrl-C leaves as much of each."""
    first = {
        row.program: run(row.program, base / row.program, empty_cache(base, row.program))
        for row in rows
    }
    for number in range(count):
        for row in rows:
            rerun(row, first[row.program], base, number, is_cold=number >= count - cold)


@click.command(help=__doc__)
@click.option("--reruns", "count", default=25, show_default=True, type=click.IntRange(1))
@click.option("--cold", default=5, show_default=True, help="Of them, the last: with empty caches.")
@click.option("--only", multiple=True, type=click.Choice(tuple(PROGRAMS)))
@click.option("--busy", "processes", default=os.cpu_count() or 1, help="[default: the CPUs]")
@click.option("--json", "output", type=Path)
def main(count: int, cold: int, only: tuple[str, ...], processes: int, output: Path | None) -> None:
    rows = [Row(program) for program in only or SHORT]
    with tempfile.TemporaryDirectory() as folder, busy(processes):
        try:
            measure(rows, count, cold, Path(folder))
        except KeyboardInterrupt:
            print("interrupted: what was run until then")
    print(
        tabulate(
            [(r.program, r.warm, r.cold, len(r.alarms), len(r.undecided)) for r in rows],
            ("program", "warm", "cold", "alarms", "undecided"),
        )
    )
    for row in rows:
        for said in dict.fromkeys(row.alarms + row.undecided):
            print(f"{row.program}: {said}")
    if output is not None:
        output.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    sys.exit(any(row.alarms for row in rows))


if __name__ == "__main__":
    main()
