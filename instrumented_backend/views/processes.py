"""The reports of one command's processes as one text."""

from collections.abc import Iterator, Sequence

from instrumented_backend.records import Report
from instrumented_backend.records.rank_reports import RankReport
from instrumented_backend.records.ranks import Run, runs
from instrumented_backend.views.output import terminal_width
from instrumented_backend.views.ranks import render_ranks
from instrumented_backend.views.text import PREFIX, render
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
    lead = min(reports, key=lambda report: (report.run.rank, -report.summary.graph_calls))
    more = (
        "next: instrumented-backend show, with the folder in INSTRUMENTED_DIR, prints this again"
        if kept
        else "next: INSTRUMENTED_DIR=FOLDER keeps the reports of all of them"
    )
    return "\n\n".join(
        [
            *_tables([RankReport.of(report) for report in reports], lead.run.job, command, width),
            f"== rank {lead.run.rank}, pid {lead.run.pid}\n{render(lead, tables, width)}",
            "\n".join(wrap(more, width)),
        ]
    )


def _tables(reports: list[RankReport], job: str | None, command: str, width: int) -> Iterator[str]:
    """One for all, but where the command started several runs: ranks of one run are compared."""
    jobs = [run for run in runs(reports) if run.world_size is not None]
    if len(jobs) < 2:
        yield render_ranks(Run(job, reports), command, width)
        return
    for number, run in enumerate(jobs, 1):
        yield render_ranks(run, f"run {number} of {command}", width)
    others = [report for report in reports if report.run.world_size is None]
    if others:
        yield render_ranks(Run(None, others), command, width)


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
