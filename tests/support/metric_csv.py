"""The CSV files that Inductor's metric tables write."""

import csv
from pathlib import Path


def table(folder: Path, name: str) -> list[dict[str, str]]:
    """The rows of a table, whose first column is checked and taken off."""
    with open(folder / f"metric_table_{name}.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        assert next(iter(row)) == "model_name" and row.pop("model_name") == ""
        assert None not in row and None not in row.values()
    return rows
