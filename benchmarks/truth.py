"""What the report says of programs of all shapes, run after run, against what is known of them.

    python benchmarks/truth.py                                # hours: all programs, 5 runs each
    python benchmarks/truth.py --only six-calls --runs 1      # a minute
    python benchmarks/truth.py --json rows.json --keep reports

Each program runs in the default and with `INSTRUMENTED_OPS=always`, in processes of their own:
forks of one that has imported torch. Its truth comes from elsewhere:

- counts of ops: how often each part of the program ran, which the program counts, times what
  torch.profiler sees in that part, in another process (`truth_programs/oracle.py`);
- the ledger: the program's own clocks round what it does and round each graph, torch's own figure
  for compile time; what these cannot tell, by `always`;
- shares of op time: `always`, which sees each op, beside what was captured in the run itself; of
  eager work that lasts for so long, without what seeing it takes (`truth_programs/looking.py`);
- on a GPU, the captured share of its timeline, and what bounds it: the clock round each graph, or
  torch.profiler's kernels; on ranks, events (`truth_programs/gpu_oracle.py`).

A row is the median run, with the worst run's error. Exit code 1 if a row is off by more than its
limit. Ctrl-C prints what was measured until then.
"""

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from proof import forked
from proof.figures import exit_code, measured, table, write_json
from proof.spreads import Spreads
from proof.truth import TRUTH_HEADERS, Row, rows_of
from proof.truth_run import Run, run_of
from truth_programs import gpu_oracle, looking, oracle, ranks
from truth_programs import measured as program
from truth_programs.catalogue import ALL, ON_CUDA, ON_RANKS, PROGRAMS
from truth_programs.run import EAGER

MODES = ("auto", "always")  # the first is what a program gets that sets nothing
ALWAYS = {"INSTRUMENTED_OPS": "always"}
WARM = 12  # turns of each loop in the run that fills the caches


@click.command(
    epilog=f"Programs: {', '.join(PROGRAMS)}; on CUDA also {', '.join(ON_CUDA)}; where there are "
    f"{ranks.RANKS} GPUs, or where they are asked for, {', '.join(ON_RANKS)}."
)
@click.option("--only", type=click.Choice(list(ALL)), multiple=True, metavar="PROGRAM")
@click.option("--runs", default=5, show_default=True, type=click.IntRange(1), help="Of each mode.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
@click.option("--long", is_flag=True, help="The long call takes 30 s, and not 5.")
@click.option("--json", "json_path", type=Path, help="Write the rows there as well.")
@click.option("--keep", type=Path, help="Keep the reports there, and what is known beside them.")
def main(
    only: tuple[str, ...],
    runs: int,
    device: str,
    long: bool,
    json_path: Path | None,
    keep: Path | None,
) -> None:
    """Compare reports with what is known of the programs; exit code 1 if one is off."""
    import torch

    if device == "cpu" and set(only) & set(ON_CUDA):
        raise click.BadParameter("that is a program for cuda", param_hint="--only")
    names = only or tuple(PROGRAMS)
    if not only and device == "cuda":
        has_all = torch.cuda.device_count() >= ranks.RANKS
        names = (*PROGRAMS, *ON_CUDA, *(ON_RANKS if has_all else ()))
    os.environ.pop("INSTRUMENTED_OPS", None)
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", f"{folder}/cache")
        base = Path(folder) if keep is None else keep.absolute()
        rows, interrupted = measured(_rows(names, runs, device, long, base))
    if interrupted:
        click.echo("interrupted: what was measured until then", err=True)
    click.echo(table(rows, TRUTH_HEADERS))
    inside = sum(row.ok for row in rows)
    click.echo(f"{inside} of {len(rows)} rows inside their limits")
    click.echo(f"torch {torch.__version__}, {device}, {runs} runs in each mode")
    if json_path is not None:
        write_json(json_path, rows)
    sys.exit(exit_code(rows, interrupted))


def _rows(names: tuple[str, ...], runs: int, device: str, long: bool, base: Path) -> Iterator[Row]:
    spreads = Spreads()
    for name in names:
        try:
            found = _runs(name, runs, device, long, base / name)
        except click.ClickException as error:
            error.show()
            yield Row(name, "it and its oracle ran", "-", None, 1, 0)
            continue
        spreads.add(found["auto"], found["always"])
        yield from rows_of(name, found)
    yield from spreads.rows()


def _runs(name: str, runs: int, device: str, long: bool, base: Path) -> dict[str, list[Run]]:
    """By mode, taking turns."""
    found: dict[str, list[Run]] = {mode: [] for mode in MODES}
    tasks = ["oracle", "warm", *(mode for _ in range(runs) for mode in MODES)]
    known: dict[str, Any] = {}
    with click.progressbar(tasks, label=f"{name:17}", file=sys.stderr) as bar:
        for task in bar:
            if task == "oracle":
                known = _call(oracle.counted, name, device, few=oracle.RUNS)
                if device == "cuda":
                    few = [gpu_oracle.PROFILED]
                    kernels = _call(gpu_oracle.profiled, name, device, few=few)
                    host = _call(gpu_oracle.clocked, name, device, few=[None])
                    known["gpu"] = {"host": host, "kernels": kernels}
                if EAGER in known["eager"]:
                    known["slower"] = _call(looking.slower, name, device, few=[None], **ALWAYS)
                base.mkdir(parents=True, exist_ok=True)
                continue
            number = len(found.get(task, ()))
            folder = base / f"{task}{number}"
            folder.mkdir(parents=True, exist_ok=True)
            for old in folder.iterdir():
                old.unlink()
            variables = {"INSTRUMENTED_DIR": str(folder)}
            if task != "auto":
                variables |= ALWAYS
            turns = WARM if task == "warm" else None
            _call(program.measured, name, device, long, turns, few=[turns], **variables)
            if task in found:
                found[task].append(run_of(folder, known))
    (base / "oracle.json").write_text(json.dumps(known))
    return found


def _call(
    function: Callable[..., Any],
    name: str,
    device: str,
    *arguments: Any,
    few: Sequence[int | None],
    **variables: str,
) -> Any:
    """In a process of its own; of a program on ranks, beside the other one.

    ``few`` has the turns of each run of the program there.
    """
    if name not in ON_RANKS:
        return forked.call(function, name, device, *arguments, **variables)
    with tempfile.TemporaryDirectory() as folder:
        first, second = ranks.variables(folder)
        finish = forked.start(ranks.partner, name, device, few, **second)
        answer = forked.call(function, name, device, *arguments, **variables, **first)
        finish()
    return answer


if __name__ == "__main__":
    main()
