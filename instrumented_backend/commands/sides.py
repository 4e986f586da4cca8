"""Reports that a command line names: a file, or the folder of a run with one for each rank."""

from pathlib import Path

import click

from instrumented_backend.commands.saved import files_of, is_folder, read_one
from instrumented_backend.records import Report
from instrumented_backend.records.escapes import to_bytes
from instrumented_backend.records.remote import AnyPath
from instrumented_backend.records.whole_file import write_whole


def reports_by_rank(path: AnyPath) -> dict[int, Report]:
    """Of one run; helpers of a process, such as DataLoader workers, are left out.

    Raises UsageError where there is none, or where two are of one rank.
    """
    found: dict[int, tuple[AnyPath, Report]] = {}
    for file in files_of(path):
        report = read_one(file)
        if report.run.worker is not None and is_folder(path):
            continue
        rank = report.run.rank
        if rank in found:
            raise click.UsageError(
                f"{path}: two reports of rank {rank}, {found[rank][0].name} and {file.name}: "
                "name one of them, or give each run a folder of its own"
            )
        found[rank] = (file, report)
    if not found:
        raise click.UsageError(f"{path}: only reports of workers in this folder; name one of them")
    return {rank: report for rank, (_, report) in sorted(found.items())}


def write_output(text: str, output: Path | None) -> None:
    """To a file or to stdout; raises UsageError where the file cannot be written."""
    content = to_bytes(text + "\n")
    if output is None:
        click.echo(content, nl=False)
        return
    try:
        output.parent.stat()  # a folder that is misspelt is not made
        write_whole(output, content)
    except (OSError, ValueError) as error:  # ValueError: no name that a file can have
        why = error.strerror if isinstance(error, OSError) else error
        raise click.UsageError(f"{output}: cannot be written: {why}") from None
