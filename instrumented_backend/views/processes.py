"""The reports of one command's processes as one text."""

from collections.abc import Sequence

from instrumented_backend.records import Report
from instrumented_backend.records.report import ENDED
from instrumented_backend.views.output import TableRow, terminal_width
from instrumented_backend.views.tables import Table
from instrumented_backend.views.text import MAX_ROWS, PREFIX, render, render_rows
from instrumented_backend.views.words import wrap


def render_processes(
    reports: Sequence[Report], command: str, tables: tuple[str, ...], kept: bool
) -> str:
    """One report as ever; of several a row each, and the whole of the one that speaks for them.

    ``kept``: are the reports in a folder of the user's?
    """
    if len(reports) == 1:
        return render(reports[0], tables)
    width = terminal_width()
    table = Table(
        "processes",
        f"{PREFIX}{_processes(len(reports))} of {command}",
        _rows,
        least=("backward_calls", "wall_s"),
    )
    rows = [row for report in reports for row in table.rows(report)]
    lead = min(reports, key=lambda report: (report.run.rank, -report.summary.graph_calls))
    more = (
        "next: instrumented-backend show, with the folder in INSTRUMENTED_DIR, prints the others"
        if kept
        else "next: INSTRUMENTED_DIR=FOLDER keeps the reports of all of them"
    )
    return "\n\n".join(
        [
            render_rows(table, rows, width, MAX_ROWS),
            f"== rank {lead.run.rank}, pid {lead.run.pid}\n{render(lead, tables, width)}",
            "\n".join(wrap(more, width)),
        ]
    )


def _rows(report: Report) -> list[TableRow]:
    summary = report.summary
    return [
        {
            "rank": report.run.rank,
            "pid": report.run.pid,
            "worker": report.run.worker,
            "status": None if report.run.status == ENDED else report.run.status,
            "graphs": summary.graphs,
            "calls": summary.graph_calls,
            "backward_calls": summary.backward_calls,
            "breaks": summary.graph_breaks,
            "recompiles": summary.recompiles,
            "compile_s": report.compile.total_s,
            "wall_s": report.run.wall_s,
        }
    ]


def nothing_observed(torches: int, disabled: bool) -> str:
    """``torches``: how many processes had torch."""
    if disabled:
        reason = "INSTRUMENTED_DISABLE=1"
    elif torches:
        reason = f"{_processes(torches)} imported torch, and none compiled anything with Inductor"
    else:
        reason = "no process imported torch in a Python that has this package"
    return f"{PREFIX}nothing observed: {reason}"


def _processes(number: int) -> str:
    return "1 process" if number == 1 else f"{number} processes"
