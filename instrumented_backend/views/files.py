"""The report as files: one JSON, and a CSV file for each table."""

import csv
import os
from pathlib import Path

from instrumented_backend.records import Report
from instrumented_backend.views.tables import TABLES, Table


def write_files(report: Report, folder: Path) -> None:
    """``report.rank<R>.pid<P>.json`` and ``<table>.rank<R>.pid<P>.csv``; raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    suffix = f"rank{report.run['rank']}.pid{report.run['pid']}"
    _write(folder / f"report.{suffix}.json", report.to_json() + "\n")
    for table in TABLES.values():
        _write_csv(folder / f"{table.name}.{suffix}.csv", table, report)


def _write(path: Path, text: str) -> None:
    """Whole or not at all: a reader never sees half a report."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


def _write_csv(path: Path, table: Table, report: Report) -> None:
    rows = table.rows(report)
    if not rows:
        return
    columns = list(dict.fromkeys(column for row in rows for column in row))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)
