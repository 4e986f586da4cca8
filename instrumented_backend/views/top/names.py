"""What the live view calls processes, recompilations and guards."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from instrumented_backend.records import GuardRecord, RecompileRecord
from instrumented_backend.records.follow import FollowedReport
from instrumented_backend.records.live import LiveReport
from instrumented_backend.views.names import named


@dataclass(frozen=True)
class Label:
    """What one process is called. ``rank`` is None where ranks don't tell the processes apart."""

    text: str
    rank: int | None = None


def labels(reports: Sequence[FollowedReport]) -> dict[FollowedReport, Label]:
    """ "rank 3" or, where ranks alone don't tell them apart, "pid 17"."""
    runs = [each.report.run for each in reports if each.report is not None]
    by_rank = len({run.rank for run in runs}) == len(runs)
    found = {}
    for each in reports:
        if each.report is None:
            found[each] = Label(each.path.name)
        elif by_rank:
            rank = each.report.run.rank
            found[each] = Label(f"rank {rank}", rank)
        else:
            run = each.report.run
            found[each] = Label(f"pid {run.pid}" + (f" {run.worker}" if run.worker else ""))
    return found


def together(processes: Iterable[Label]) -> str:
    """``"ranks 0-2, 5"``; those without a rank one by one."""
    known = dict.fromkeys(processes)
    ranks = sorted(label.rank for label in known if label.rank is not None)
    parts = [label.text for label in known if label.rank is None]
    if ranks:
        spans: list[list[int]] = []
        for rank in ranks:
            if spans and spans[-1][-1] == rank - 1:
                spans[-1] = [spans[-1][0], rank]
            else:
                spans.append([rank])
        words = ", ".join("-".join(map(str, span)) for span in spans)
        parts.insert(0, f"{'rank' if len(ranks) == 1 else 'ranks'} {words}")
    return ", ".join(parts)


def recompiled(report: LiveReport, record: RecompileRecord) -> str:
    """The same, by the module's name where it has one."""
    compiled = next((each for each in report.compiled if each.compiled == record.compiled), None)
    if compiled is None or compiled.path is None:
        return named(record.function, record.file, record.line)
    if record.function == compiled.target:  # torch's own: its line is the same for each such module
        return named(compiled.path, compiled.file, compiled.line)
    return named(record.function, record.file, record.line, f"{compiled.path}.")


def guard(record: GuardRecord) -> str:
    """``"size of x in dimension 1: 64 → 48"``"""
    if not record.values:
        return record.subject
    values = [*record.values, *(["..."] if record.more_values else [])]
    if len(values) < 2:
        values.append("something else")
    return f"{record.subject}: {' → '.join(values)}"
