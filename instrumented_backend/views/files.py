"""The report as files: one JSON, and a CSV file for each table."""

from pathlib import Path

from instrumented_backend.records import Report
from instrumented_backend.records.whole_file import write_whole
from instrumented_backend.views.output import write_csv
from instrumented_backend.views.tables import TABLES, Table


def write_report(report: Report, folder: Path) -> None:
    """``report.rank<R>.pid<P>.json``, whole or not at all; raises OSError."""
    write_whole(folder / f"report.{_suffix(report)}.json", report.to_json() + "\n")


def write_files(report: Report, folder: Path) -> None:
    """``report.rank<R>.pid<P>.json`` and ``<table>.rank<R>.pid<P>.csv``; raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    write_report(report, folder)
    for table in TABLES.values():
        _write_csv(folder / f"{table.name}.{_suffix(report)}.csv", table, report)


def _suffix(report: Report) -> str:
    return f"rank{report.run.rank}.pid{report.run.pid}"


def _write_csv(path: Path, table: Table, report: Report) -> None:
    rows = list(table.rows(report))
    if not rows:
        return
    # A name that is not UTF-8 is written with escapes.
    with path.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
        write_csv(file, rows)
