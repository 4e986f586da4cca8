"""`RESULTS.md` from the files in `results/`, and these from what a benchmark wrote.

    python benchmarks/results_table.py
    python benchmarks/overhead.py --only call --json rows.json
    python benchmarks/results_table.py --take rows.json --device "2 CPU cores" \\
        --command "python benchmarks/overhead.py --only call"
    python benchmarks/truth.py --only gan --runs 3 --json rows.json
    python benchmarks/results_table.py --programs rows.json --runs 3 --device "2 CPU cores" \\
        --command "python benchmarks/truth.py --only gan --runs 3"

`--take` renews the files whose ``row`` is a row of ``rows.json``: figures, versions, date, commit.
`--programs` writes those of the programs in it.
`results/README.md` says what is in a file.
"""

import importlib.metadata
import json
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import truth_table

FOLDER = Path(__file__).parent / "results"
TABLE = Path(__file__).parent / "RESULTS.md"

GROUPS = {"cost": "What it costs", "accuracy": "Against oracles", "speed": "Speed"}
COLUMNS = (
    *("what", "claim", "limit", "latest", "n"),
    *("machine", "versions", "date", "commit", "command"),
)
_RATIO = "x"
_INTRODUCTION = """# Measured

The latest figure of each claim. `python benchmarks/results_table.py` makes this table from the
files in `benchmarks/results/`, whose README says what is in them.

- A figure is a median with its quartiles, unless it says something else. `x` is a ratio; of costs,
  to plain Inductor in the same process, in turns.
- **Bold** figures miss their limit.
- Absolute figures belong to their machine. `-` is not known.
"""

Result = dict[str, Any]


def read() -> list[Result]:
    """All of them, by group and name."""
    results = [
        json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))
    ]
    return sorted(results, key=lambda result: list(GROUPS).index(result["group"]))


def table(results: list[Result]) -> str:
    rows = [list(COLUMNS), ["---"] * len(COLUMNS), *map(_cells, results)]
    return "\n".join([_INTRODUCTION, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def _cells(result: Result) -> list[str]:
    versions = ", ".join(f"{name} {text}" for name, text in result["versions"].items() if text)
    command, commit = result["command"], result["commit"]
    return [
        GROUPS[result["group"]],
        result["claim"],
        _limit(result),
        _latest(result),
        str(result["n"]),
        result["device"] or "-",
        versions or "-",
        result["date"] or "-",
        f"`{commit}`" if commit else "-",
        f"`{command}`" if command else "-",
    ]


def _limit(result: Result) -> str:
    if result["limit"] is None:
        return "-"
    low, high = result["limit"]
    unit = _unit(result)
    if low is not None and high is not None:
        return f"{low:g} … {high:g}{unit}"
    return f"≤ {high:g}{unit}" if low is None else f"≥ {low:g}{unit}"


def _latest(result: Result) -> str:
    median, low, high = (result[name] for name in ("median", "low", "high"))
    spread = "" if low is None else f"{low:g} … {high:g}"
    if median is None:
        text = f"{spread}{_unit(result)}"
    else:
        text = f"{median:g}{_unit(result)}" + (f" ({spread})" if spread else "")
    if result["statistic"] != "median":
        text += f", {result['statistic']}"
    return text if is_inside(result) else f"**{text}**"


def is_inside(result: Result) -> bool:
    """Whether the figure is inside its limit, if it has one."""
    low, high = result["limit"] or (None, None)
    figure = result["median"]
    return figure is None or ((low is None or figure >= low) and (high is None or figure <= high))


def _unit(result: Result) -> str:
    unit = result["unit"]
    return unit if unit == _RATIO else f" {unit}"


def take(rows: Path, device: str, command: str) -> list[str]:
    """Renew the results that are rows of the file; returns the names of the files."""
    measured = {row["what"]: row for row in json.loads(rows.read_text()) if "what" in row}
    taken = []
    for path in sorted(FOLDER.glob("*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        row = measured.get(result["row"])
        if row is None:
            continue
        result |= {
            "median": row["median"],
            "low": row["low_quartile"],
            "high": row["high_quartile"],
            "n": row["pairs"],
            **about(device, command),
        }
        path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        taken.append(path.name)
    return taken


def about(device: str, command: str) -> Result:
    """Where and when something was measured."""
    return {
        "device": device,
        "versions": {name: _version(name) for name in ("torch", "python", "triton")},
        "date": datetime.now(UTC).date().isoformat(),
        "commit": _commit(),
        "command": command,
    }


def _version(name: str) -> str | None:
    if name == "python":
        return platform.python_version()
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> str:
    """Of the working tree, with a plus sign where it has changes."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(FOLDER), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    changes = "+" if git("status", "--porcelain", "--", "../../instrumented_backend") else ""
    return git("rev-parse", "--short", "HEAD") + changes


def page() -> str:
    return f"{table(read())}\n{truth_table.table(truth_table.read())}"


@click.command()
@click.option("--take", "rows", type=Path, help="Renew results: overhead.py --json.")
@click.option("--programs", type=Path, help="Write results of programs: truth.py --json.")
@click.option("--runs", default=5, show_default=True, help="Of each of these programs.")
@click.option("--device", help="Where that was measured.")
@click.option("--command", help="What measured it.")
def main(
    rows: Path | None, programs: Path | None, runs: int, device: str | None, command: str | None
) -> None:
    """Write RESULTS.md from the files in results/."""
    if rows is not None or programs is not None:
        if device is None or command is None:
            raise click.UsageError("--take and --programs want --device and --command, too")
        taken = [] if rows is None else take(rows, device, command)
        if programs is not None:
            taken += truth_table.take(programs, runs, about(device, command))
        click.echo("\n".join(taken) or "no result has a row in it", err=not taken)
        if not taken:
            sys.exit(1)
    TABLE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
