"""The report as files: one JSON, and a CSV file for each table."""

from instrumented_backend.records import Report
from instrumented_backend.records.escapes import to_bytes
from instrumented_backend.records.remote import AnyPath
from instrumented_backend.records.whole_file import sweep, write_whole
from instrumented_backend.views.output import to_csv
from instrumented_backend.views.tables import TABLES


def write_report(report: Report, folder: AnyPath) -> None:
    """``report.rank<R>.pid<P>.json``, whole or not at all; raises OSError."""
    write_whole(folder / f"report.{_suffix(report)}.json", report.to_json() + "\n")


def write_files(report: Report, folder: AnyPath) -> dict[str, OSError]:
    """``report.rank<R>.pid<P>.json`` and ``<table>.rank<R>.pid<P>.csv``, each whole or not at all.

    Returns which could not be written, and why; raises OSError where there can be no folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sweep(folder)
    suffix = _suffix(report)
    contents = {f"report.{suffix}.json": (report.to_json() + "\n").encode()}
    for table in TABLES.values():
        rows = list(table.rows(report))
        if rows:
            contents[f"{table.name}.{suffix}.csv"] = to_bytes(to_csv(rows))
    lost = {}
    for name, content in contents.items():
        try:
            write_whole(folder / name, content)
        except OSError as error:
            lost[name] = error
    return lost


def _suffix(report: Report) -> str:
    return f"rank{report.run.rank}.pid{report.run.pid}"
