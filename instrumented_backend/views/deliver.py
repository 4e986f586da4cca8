"""Where a finished report goes: stderr of rank 0, the files of every rank, and `run`."""

import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from instrumented_backend.records import Report, notes
from instrumented_backend.records.remote import AnyPath
from instrumented_backend.records.whole_file import write_whole
from instrumented_backend.settings import Settings
from instrumented_backend.views.files import write_files, write_report
from instrumented_backend.views.next_steps import next_steps
from instrumented_backend.views.text import render

log = logging.getLogger("instrumented_backend")


def deliver(report: Report, settings: Settings) -> None:
    """Print and write what the settings ask for. The program's exit code stays its own."""
    report.next_steps = next_steps(report)
    if settings.dir is not None:
        for text in _write(report, settings.dir):
            log.warning("%s", text)
            report.add_note(notes.LOST, text)
    if settings.run is not None and _handed_over(report, settings.run):
        return
    if report.run.rank == 0 and settings.tables:
        show(render(report, settings.tables))
    if settings.html is not None:  # last: whatever becomes of it, the summary has been printed
        lost = write_page([report], _of_its_own(settings.html, report))
        if lost is not None:
            log.warning("%s", lost)


def write_page(reports: Sequence[Report], path: Path) -> str | None:
    """What was lost, in a line; None where all is well."""
    # Here, because nobody else needs what draws pages.
    from instrumented_backend.views.page.page import render_page, to_bytes

    try:
        write_whole(path, to_bytes(render_page(reports)))
    except OSError as error:
        return f"lost: the page {path}: {error.strerror or error}"
    return None


def _of_its_own(path: Path, report: Report) -> Path:
    """The process of rank 0 has the name itself; others would write over each other's pages."""
    if report.run.rank == 0 and report.run.worker is None:
        return path
    return path.with_name(f"{path.stem}.rank{report.run.rank}.pid{report.run.pid}{path.suffix}")


def _write(report: Report, folder: AnyPath) -> list[str]:
    """What was lost, a line for each reason."""
    try:
        lost = write_files(report, folder)
    except OSError as error:
        return [f"lost: report files: {error}"]
    reasons: dict[str, list[str]] = {}
    for name, problem in lost.items():
        reasons.setdefault(problem.strerror or str(problem), []).append(name)
    return [
        f"lost: not written in {folder}: {', '.join(names)}: {reason}"
        for reason, names in reasons.items()
    ]


def _handed_over(report: Report, folder: Path) -> bool:
    """To `run`, which shows it; not if this process has outlived that, or is on another machine."""
    if not folder.is_dir():
        return False
    try:
        write_report(report, folder)
    except OSError as error:
        log.warning("no report for `run`: %s", error)
        return False
    return True


def tell(report: Report) -> None:
    """The summary of a program that still runs, whatever its rank: it was asked."""
    show(render(report, ("summary",)))


def show(text: str) -> None:
    """Print it on stderr, whatever characters that has, if it is there."""
    if sys.stderr is None:  # which Python's own ``print`` takes for stdout
        return
    try:
        try:
            print(text, file=sys.stderr, flush=True)
        except UnicodeEncodeError:
            # Python's own stderr shows as escapes what it has no characters for; this is another.
            print(_in_ascii(text), file=sys.stderr, flush=True)
    except (OSError, ValueError):
        return  # stderr is closed, or a broken pipe: there is nowhere left to say it


def _in_ascii(text: str) -> str:
    """``text`` in characters that every stream has."""
    for character, plain in _PLAIN.items():
        text = text.replace(character, plain)
    return text.encode("ascii", "backslashreplace").decode("ascii")


_PLAIN = {"·": "-", "µ": "u", "±": "+-", "→": "->", "…": "..."}
