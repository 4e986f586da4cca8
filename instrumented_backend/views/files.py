"""The report as files: one JSON, and a CSV file for each table."""

from pathlib import Path

from instrumented_backend.records import Report
from instrumented_backend.records.escapes import to_bytes
from instrumented_backend.records.whole_file import write_whole
from instrumented_backend.views.output import to_csv
from instrumented_backend.views.tables import TABLES, Table


def write_files(report: Report, folder: Path) -> None:
    """``report.rank<R>.pid<P>.json`` and ``<table>.rank<R>.pid<P>.csv``; raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    suffix = f"rank{report.run.rank}.pid{report.run.pid}"
    write_whole(folder / f"report.{suffix}.json", report.to_json() + "\n")
    for table in TABLES.values():
        _write_csv(folder / f"{table.name}.{suffix}.csv", table, report)


def _write_csv(path: Path, table: Table, report: Report) -> None:
    rows = list(table.rows(report))
    if not rows:
        return
    path.write_bytes(to_bytes(to_csv(rows)))
