"""The programs of `truth.py` in `RESULTS.md`, a row each, from the files in `results/programs/`."""

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from proof.figures import Figure

FOLDER = Path(__file__).parent / "results" / "programs"

Result = dict[str, Any]
Row = dict[str, Any]

INTRODUCTION = """## Programs whose truth is known

What `benchmarks/truth.py` found of each, when it was last run on a kind of device. A program has
several runs, in the default and with `INSTRUMENTED_OPS=always`; an error is the median run's, and
the largest of its kind in the default. **Bold** ones are over their limit.
"""


# Columns: which rows they have. Shares of op time are those of an op or a line, by any name.
ERRORS: dict[str, Callable[[Row], bool]] = {
    "ops, %": lambda row: row["figure"] in ("captured ops", "eager ops"),
    "calls of an op, %": lambda row: row["figure"].startswith(("count of ", "calls of ")),
    "op time, points": lambda row: (
        row["in_points"] and not row["figure"].startswith(("ledger: ", "GPU: "))
    ),
    "ledger, points": lambda row: row["in_points"] and row["figure"].startswith("ledger: "),
    "GPU, points": lambda row: row["in_points"] and row["figure"].startswith("GPU: "),
}
SPREAD = re.compile(r"truth in spread, % of (\d+)$")
COLUMNS = (
    *("program", *ERRORS, "truths in their spreads", "rows inside", "runs"),
    *("machine", "versions", "date", "commit"),
)


def take(rows: Path, runs: int, about: Result) -> list[str]:
    """Write the results of a program, or of each of several; returns the names of the files.

    ``rows``: what ``truth.py --json`` wrote of ``runs`` runs. ``about``: the other fields.
    """
    by_program: dict[str, list[Row]] = {}
    together: list[Row] = []
    for row in json.loads(rows.read_text(encoding="utf-8")):
        kept = {name: row[name] for name in ("figure", "ours", "oracle", "limit", "worst", "ok")}
        kept |= {"mode": row["cache"], "in_points": row["in_points"]}
        if SPREAD.search(row["figure"]):
            together.append(kept)
        else:
            by_program.setdefault(row["model"], []).append(kept)
    if len(by_program) > 1:
        together = []  # of all together
    kind = "cuda" if "--device cuda" in about["command"] else "cpu"
    names = []
    for program, its_rows in by_program.items():
        result = {"program": program, "runs": runs, **about, "rows": [*its_rows, *together]}
        names.append(f"{program}-{kind}.json")
        text = json.dumps(result, indent=1, ensure_ascii=False) + "\n"
        (FOLDER / names[-1]).write_text(text, encoding="utf-8")
    return names


def read() -> list[Result]:
    """All of them, by name."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))]


def table(results: Iterable[Result]) -> str:
    rows = [list(COLUMNS), ["---"] * len(COLUMNS), *map(_cells, results)]
    return "\n".join([INTRODUCTION, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def _cells(result: Result) -> list[str]:
    rows = result["rows"]
    spreads = [(row, SPREAD.search(row["figure"])) for row in rows]
    asked = [(row, int(match[1])) for row, match in spreads if match is not None]
    inside = sum(round(row["ours"] * of / 100) for row, of in asked)
    others = [row for row, match in spreads if match is None and row["mode"] == "auto"]
    good = sum(row["ok"] for row in rows)
    of_all = f"{good} of {len(rows)}"
    versions = ", ".join(f"{name} {text}" for name, text in result["versions"].items() if text)
    return [
        result["program"],
        *(_largest(others, is_one) for is_one in ERRORS.values()),
        f"{inside} of {sum(of for _, of in asked)}" if asked else "-",
        of_all if good == len(rows) else f"**{of_all}**",
        str(result["runs"]),
        *(result["device"], versions, result["date"], f"`{result['commit']}`"),
    ]


def _largest(rows: list[Row], is_one: Callable[[Row], bool]) -> str:
    """The error of the row that is off by most of its limit."""
    figures = [
        Figure(
            "", *(row[name] for name in ("figure", "mode", "ours", "oracle", "limit", "in_points"))
        )
        for row in rows
        if is_one(row)
    ]
    errors = [
        (figure.error, figure.limit)
        for figure in figures
        if figure.error is not None and figure.limit
    ]
    if not errors:
        return "-"
    error, limit = max(errors, key=lambda pair: pair[0] / pair[1])
    text = f"{error:.2f}"
    return text if error <= limit else f"**{text}**"
