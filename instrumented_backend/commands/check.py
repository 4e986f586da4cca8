"""``instrumented-backend check``: a build that fails where a limit is missed."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from instrumented_backend import __version__
from instrumented_backend.commands.sides import reports_by_rank, write_output
from instrumented_backend.records import Report

if TYPE_CHECKING:
    from instrumented_backend.compare.baseline import Baseline
    from instrumented_backend.compare.checking import Finding
    from instrumented_backend.compare.limits import Limits

FORMATS = ("text", "junit", "sarif", "github")


@click.command("check")
@click.argument("path", type=Path, metavar="REPORT|DIR")
@click.option(
    "--config",
    type=Path,
    help="TOML with limits. [default: the nearest pyproject.toml]",
)
@click.option("--limit", "texts", multiple=True, metavar="NAME=NUMBER", help="A limit; repeatable.")
@click.option("--baseline", "baseline_path", type=Path, help="What nothing may be worse than.")
@click.option("--update", is_flag=True, help="Write the baseline from this report, and pass.")
@click.option("--explain", is_flag=True, help="Also say how each figure came about.")
@click.option(
    "--format",
    "layout",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="github: annotations for a workflow.",
)
@click.option("-o", "--output", type=Path, help="A file to write, in place of stdout.")
def command(
    path: Path,
    config: Path | None,
    texts: tuple[str, ...],
    baseline_path: Path | None,
    update: bool,
    explain: bool,
    layout: str,
    output: Path | None,
) -> int:
    """Hold a saved report to limits: exit code 0 if all are kept, 1 if one is missed, 2 if what
    was given cannot be checked.

    REPORT is a report.*.json, DIR the folder of a run, each of whose ranks is checked. Limits are
    figures: most of them at most, captured_*_pct at least. They are in pyproject.toml:

    \b
        [tool.instrumented-backend.check]
        graph_breaks = 0
        captured_ops_pct = 95
        baseline = "compile-baseline.json"
        [tool.instrumented-backend.check.functions."Model.forward"]
        recompiles = 1
        [tool.instrumented-backend.check.allow]
        kernels = "5 %"

    With a baseline, breaks, skipped functions, recompiles, graphs, kernels and their bytes, and
    the captured share of ops may not be worse than in it; `allow` says by how much they may, and
    adds figures. Times are compared only if they are named there, or have a limit.

    \b
        instrumented-backend check reports --limit graph_breaks=0
        instrumented-backend check reports --baseline baseline.json --update
        instrumented-backend check reports --baseline baseline.json
    """
    from instrumented_backend.compare.checking import MISSED
    from instrumented_backend.compare.limits import CheckError

    reports = reports_by_rank(path)
    try:
        limits = _limits(config, texts, baseline_path, update)
        if update:
            return _update(limits, reports, output)
        findings, remarks = _findings(limits, reports)
    except CheckError as error:
        raise click.UsageError(str(error)) from None
    first = next(iter(reports.values()))
    write_output(_drawn(first, findings, remarks, layout, explain), output)
    return int(any(finding.status == MISSED for finding in findings))


def _limits(
    config: Path | None, texts: tuple[str, ...], baseline: Path | None, update: bool
) -> "Limits":
    """From the file, then from the command line, which takes precedence. Raises CheckError."""
    from instrumented_backend.compare.limits import (
        TABLE,
        CheckError,
        Limits,
        nearest_pyproject,
        read_limit,
        read_limits,
    )

    limits = None
    source = config or nearest_pyproject(Path.cwd())
    if source is not None:
        limits = read_limits(source)
        if limits is None and config is not None:
            raise CheckError(f"{config}: no table {TABLE} in it")
    limits = limits or Limits()
    for text in texts:
        name, number = read_limit(text)
        limits.absolute[name] = number
        limits.given.add(name)
    if baseline is not None:
        limits.baseline = baseline
    if limits.is_empty() and not update:
        raise CheckError(
            f"nothing to check: give --limit or --baseline, or put a table {TABLE} into "
            "pyproject.toml"
        )
    return limits


def _update(limits: "Limits", reports: dict[int, Report], output: Path | None) -> int:
    from instrumented_backend.compare.baseline import baseline_of, write_baseline
    from instrumented_backend.compare.limits import CheckError

    if limits.baseline is None:
        raise CheckError("--update writes the baseline: name it with --baseline, or in the limits")
    baseline = baseline_of(reports.values(), limits.allowed)
    try:
        write_baseline(limits.baseline, baseline)
    except (OSError, ValueError) as error:  # ValueError: no name that a file can have
        why = error.strerror if isinstance(error, OSError) else error
        raise CheckError(f"{limits.baseline}: cannot be written: {why}") from None
    ranks = "" if len(reports) == 1 else f" of {len(reports)} ranks"
    write_output(f"wrote {limits.baseline}{ranks}: nothing was checked", output)
    return 0


def _findings(limits: "Limits", reports: dict[int, Report]) -> tuple[list["Finding"], list[str]]:
    """And what to know of the baseline. Raises CheckError."""
    from instrumented_backend.compare.baseline import read_baseline
    from instrumented_backend.compare.checking import check

    if limits.baseline is None:
        findings = [one for report in reports.values() for one in check(report, limits)]
        return findings, []
    baseline = read_baseline(limits.baseline)
    remarks = _fits(baseline, limits.baseline, reports)
    findings = []
    for rank, report in reports.items():
        findings += check(report, limits, baseline.ranks[str(rank)])
    return findings, remarks


def _fits(baseline: "Baseline", path: Path, reports: dict[int, Report]) -> list[str]:
    """What differs from the baseline's run. Raises CheckError where the two cannot be compared."""
    from instrumented_backend.compare.functions import program_of
    from instrumented_backend.compare.limits import CheckError

    first = next(iter(reports.values()))
    if baseline.program != program_of(first):
        raise CheckError(
            f"{path} is of another program: {baseline.program}, and the report of "
            f"{program_of(first)}; --update writes it anew"
        )
    missing = [rank for rank in reports if str(rank) not in baseline.ranks]
    if missing:
        known = ", ".join(baseline.ranks) or "none"
        raise CheckError(f"{path} has no rank {missing[0]}, but {known}; --update writes it anew")
    return [
        f"the baseline was made with {what} {was}, this is {now}"
        for what, was, now in (
            ("torch", baseline.torch, first.run.torch),
            ("the device", baseline.device, first.run.device),
        )
        if was != now
    ]


def _drawn(
    report: Report, findings: list["Finding"], remarks: list[str], layout: str, explain: bool
) -> str:
    from instrumented_backend.compare.functions import program_of
    from instrumented_backend.records.escapes import shown_lines, within_lines
    from instrumented_backend.views import check, check_files
    from instrumented_backend.views.output import terminal_width

    name = program_of(report) or "a program"
    if layout == "junit":
        return check_files.as_junit(f"instrumented-backend check {name}", findings)
    if layout == "sarif":
        return check_files.as_sarif(__version__, findings)
    if layout == "github":
        return within_lines(check.as_github(findings))
    head = f"check: {report.run.command}, torch {report.run.torch}, {report.run.device}"
    return shown_lines(check.as_text(head, remarks, findings, terminal_width(), explain))
