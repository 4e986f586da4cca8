"""What has happened between two reports of a process, a line for each."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from instrumented_backend.records import BreakRecord, CompileRecord, Compiling, RecompileRecord
from instrumented_backend.records.causes import GAVE_UP
from instrumented_backend.records.live import LiveReport
from instrumented_backend.records.report import RUNNING
from instrumented_backend.units import elapsed, seconds
from instrumented_backend.views.names import compilation
from instrumented_backend.views.top.names import Label, guard, recompiled
from instrumented_backend.views.words import short_path

# How an event is to be seen.
PLAIN, WORK, BAD = "plain", "work", "bad"
_NOT_COMPILED = {"failed": "failed to compile", "skipped": "gave up compiling"}
MAX_GUARDS = 3  # of one event


@dataclass
class Event:
    """``at`` is in seconds since 1970; ``who`` are the processes to which it happened.

    ``why`` stands behind a colon, after the time that it took.
    """

    at: float
    text: str
    kind: str = PLAIN
    seconds: list[float] = field(default_factory=list)  # that it took each of them
    who: list[Label] = field(default_factory=list)
    why: str = ""

    @property
    def took(self) -> str:
        """``" in 23.0 s"``, ``" in 21.0 s … 23.0 s"``"""
        shown = dict.fromkeys(seconds(each) for each in (min(self.seconds), max(self.seconds)))
        return f" in {' … '.join(shown)}"

    @property
    def words(self) -> str:
        took = self.took if self.seconds else ""
        return f"{self.text}{took}{f': {self.why}' if self.why else ''}"

    @property
    def key(self) -> tuple[str, str, str]:
        """The same for one event in several processes."""
        return self.text, self.why, self.kind


def events(report: LiveReport, before: LiveReport | None) -> Iterator[Event]:
    """What happened between two reports. Without an earlier one: only what is under way."""
    was_under_way = {_key(each): each for each in before.compiling} if before is not None else {}
    under_way = {_key(each): each for each in report.compiling}
    if before is not None:
        ended = [each for key, each in was_under_way.items() if key not in under_way]
        yield from _compilations(report, before, ended)
        yield from _breaks(report, before)
        yield from _limits(report, before)
    if report.run.status == RUNNING:
        for key, each in under_way.items():
            if key not in was_under_way:
                why = "" if each.why is None else f" again: {each.why}"
                yield Event(each.since_at, f"compiling {compilation(each)}{why}", WORK)


def _key(record: Compiling) -> tuple[str, float]:
    return record.compile_id, record.since_at


_Again = tuple[RecompileRecord, list[str], int]  # the guards that failed, and how often


def _compilations(
    report: LiveReport, before: LiveReport, ended: list[Compiling]
) -> Iterator[Event]:
    """``ended`` had been seen under way; the others were too short for that."""
    again = list(_recompiled(report, before))
    new = report.compile.compilations[len(before.compile.compilations) :]
    for each in ended:
        record = next((one for one in new if one.compile_id == each.compile_id), None)
        new = [one for one in new if one is not record]
        yield from _ended(report, each, record, again)
    told = {_place(each) for each in ended}
    for recompile, guards, times in again:
        if _place(recompile) not in told:
            often = "" if times == 1 else f" {times} times"
            what = f"recompiled {recompiled(report, recompile)}{often}"
            yield Event(_at(report), what, WORK, why="; ".join(guards))
    told |= {_place(recompile) for recompile, _, _ in again}
    others = [each for each in new if _place(each) not in told and each.outcome == "compiled"]
    if others:
        took_s = sum(each.total_s or 0.0 for each in others)
        yield Event(_at(report), f"compiled {len(others)} more", WORK, [took_s])


def _at(report: LiveReport) -> float:
    return report.run.seen_at or 0.0


def _place(
    record: Compiling | CompileRecord | RecompileRecord,
) -> tuple[str | None, str | None, int | None]:
    return record.function, record.file, record.line


def _recompiled(report: LiveReport, before: LiveReport) -> Iterator[_Again]:
    counted = {(*_place(record), record.compiled): record for record in before.recompiles}
    for record in report.recompiles:
        old = counted.get((*_place(record), record.compiled))
        times = record.count - (old.count if old is not None else 0)
        if times > 0:
            known = {each.subject: each.count for each in old.guards} if old is not None else {}
            failed = [each for each in record.guards if each.count > known.get(each.subject, 0)]
            yield record, [guard(each) for each in failed[:MAX_GUARDS]], times


def _ended(
    report: LiveReport, ended: Compiling, record: CompileRecord | None, again: list[_Again]
) -> Iterator[Event]:
    what, why = "compiled", [] if ended.why is None else [ended.why]
    for recompile, guards, _ in again:
        if _place(recompile) == _place(ended):
            what, why = "recompiled", guards or why
    at, took = _at(report), []
    if record is not None:
        what = _NOT_COMPILED.get(record.outcome, what)
        if record.total_s is not None:
            at, took = min(at, ended.since_at + record.total_s), [record.total_s]
    elif what == "compiled":  # not recorded: the program has ended, or beyond what is listed
        if report.run.status != RUNNING:
            return
        what = "no longer compiling"
    yield Event(at, f"{what} {compilation(ended)}", WORK, took, why="; ".join(why))


def _breaks(report: LiveReport, before: LiveReport) -> Iterator[Event]:
    known = {_break_key(each) for each in before.breaks}
    for each in report.breaks:
        if _break_key(each) not in known:
            what = "gave up" if each.kind == GAVE_UP else "graph break"
            words = f"{what} at {short_path(each.file, each.line)}: {each.reason}"
            yield Event(_at(report), words, BAD)


def _break_key(record: BreakRecord) -> tuple[str, str, str | None, int | None]:
    return record.kind, record.reason, record.file, record.line


def _limits(report: LiveReport, before: LiveReport) -> Iterator[Event]:
    hit = {_place(each) for each in before.recompiles if each.limit_hits}
    for each in report.recompiles:
        if each.limit_hits and _place(each) not in hit:
            where = recompiled(report, each)
            what = "raises" if each.limit_raised else "runs eagerly"
            words = f"recompile limit reached: {where}: what fits no version of it {what}"
            yield Event(_at(report), words, BAD)


def found(report: LiveReport, state: str) -> str:
    """``"running, for 4 min 12 s: python train.py"``"""
    age_s = age(report)
    for_s = "" if age_s is None else f", {'for' if state == RUNNING else 'after'} {elapsed(age_s)}"
    return f"{state}{for_s}{f': {report.run.command}' if report.run.command else ''}"


def age(report: LiveReport) -> float | None:
    """The process's age or, where that is not known, how long it had been observed."""
    return report.run.wall_s if report.ledger.wall_s is None else report.ledger.wall_s
