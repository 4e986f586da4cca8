"""``instrumented-backend diff``: what changed between two runs."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from instrumented_backend.commands.sides import reports_by_rank, write_output
from instrumented_backend.records import Report
from instrumented_backend.records.escapes import shown_lines

if TYPE_CHECKING:
    from instrumented_backend.compare.difference import Comparison

FORMATS = ("text", "json", "markdown", "html")


@click.command("diff")
@click.argument("before", type=Path, metavar="A")
@click.argument("after", type=Path, metavar="B")
@click.option(
    "--format",
    "layout",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="markdown is for a comment on a pull request, html one file.",
)
@click.option("-o", "--output", type=Path, help="A file to write, in place of stdout.")
def command(before: Path, after: Path, layout: str, output: Path | None) -> None:
    """What changed from run A to run B, the costliest first, each with its line.

    A and B are saved reports, or the folders of two runs, whose ranks are compared one by one.
    Graphs, breaks and kernels are found again though lines have moved, files were edited, or torch
    is another. A figure counts as changed only beyond its own spread; times of one run each are
    told and not judged.

    \b
        instrumented-backend diff reports/main reports/branch
        instrumented-backend diff a.json b.json --format markdown
    """
    from instrumented_backend.compare.compare import compare

    ours, theirs = reports_by_rank(before), reports_by_rank(after)
    if len(ours) == len(theirs) == 1:
        # A report of rank 1 may well be compared with one of rank 0.
        pairs = [(next(iter(ours.values())), next(iter(theirs.values())))]
    else:
        pairs = [(ours[rank], theirs[rank]) for rank in ours if rank in theirs]
    if not pairs:
        raise click.UsageError(
            f"no rank is in both: {_ranks(ours)} in {before}, {_ranks(theirs)} in {after}"
        )
    for path, mine, others in ((before, ours, theirs), (after, theirs, ours)):
        only = [rank for rank in mine if rank not in others]
        if only and len(pairs) != max(len(ours), len(theirs)):
            click.echo(f"only in {path}: rank {', '.join(map(str, only))}", err=True)
    compared = []
    for one, other in pairs:
        names = (_name(before, one, len(pairs)), _name(after, other, len(pairs)))
        compared.append(compare(one, other, names))
    write_output(_drawn(compared, layout), output)


def _ranks(reports: dict[int, Report]) -> str:
    return f"rank {', '.join(map(str, reports))}"


def _name(path: Path, report: Report, pairs: int) -> str:
    rank = f", rank {report.run.rank}" if pairs > 1 else ""
    torch = report.run.torch.partition("+")[0]
    return f"{path}{rank}: {report.run.command}, torch {torch}, {report.run.device}"


def _drawn(compared: "list[Comparison]", layout: str) -> str:
    from instrumented_backend.views import diff
    from instrumented_backend.views.output import terminal_width

    if layout == "json":
        import json

        import msgspec

        plain = msgspec.to_builtins(compared)
        return json.dumps(plain[0] if len(plain) == 1 else plain, indent=1)
    if layout == "html":
        return diff.as_html(compared)
    if layout == "markdown":
        return "\n\n".join(map(diff.as_markdown, compared))
    width = terminal_width()
    return shown_lines("\n\n".join(diff.as_text(one, width) for one in compared))
