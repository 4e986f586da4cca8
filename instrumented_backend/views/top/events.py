"""What has happened between two reports of a process, a line for each."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from instrumented_backend.records import BreakRecord, Compiling, RecompileRecord
from instrumented_backend.records.live import LiveReport
from instrumented_backend.records.report import RUNNING
from instrumented_backend.units import elapsed, seconds
from instrumented_backend.views.top.names import compilation, guard, recompiled
from instrumented_backend.views.words import count, short_path

# How an event is to be seen.
PLAIN, WORK, BAD = "plain", "work", "bad"
_NOT_COMPILED = {"failed": "failed to compile", "skipped": "gave up compiling"}
MAX_GUARDS = 3  # of one event


@dataclass
class Event:
    """``at`` is in seconds since 1970; ``who`` are the processes to which it happened."""

    at: float
    text: str
    kind: str = PLAIN
    seconds: list[float] = field(default_factory=list)  # that it took each of them
    who: list[str] = field(default_factory=list)

    @property
    def took(self) -> str:
        """``" in 23.0 s"``, ``" in 21.0 s … 23.0 s"``"""
        shown = dict.fromkeys(seconds(each) for each in (min(self.seconds), max(self.seconds)))
        return f" in {' … '.join(shown)}"

    @property
    def words(self) -> str:
        what, colon, why = self.text.partition(": ")
        return f"{what}{self.took}{colon}{why}" if self.seconds else self.text


def events(report: LiveReport, before: LiveReport | None) -> Iterator[Event]:
    """Without a report before, what goes on, and not all that had happened until then."""
    at = report.run.seen_at or 0.0
    was_under_way = {_key(each): each for each in before.compiling} if before is not None else {}
    under_way = {_key(each): each for each in report.compiling}
    again = list(_recompiled(report, before)) if before is not None else []
    ended = [each for key, each in was_under_way.items() if key not in under_way]
    if before is not None:
        for each in ended:
            yield from _ended(report, before, each, again, at)
    for record, guards, times in again:
        if not any(_place(each) == _place(record) for each in ended):
            often = "" if times == 1 else f" {times} times"
            words = f"recompiled {recompiled(report, record)}{often}{_because(guards)}"
            yield Event(at, words, WORK)
    if before is not None:
        yield from _other_compilations(report, before, len(ended), len(again), at)
        yield from _breaks(report, before, at)
        yield from _limits(report, before, at)
    if report.run.status == RUNNING:
        for key, each in under_way.items():
            if key not in was_under_way:
                why = "" if each.why is None else f" again: {each.why}"
                yield Event(each.since_at, f"compiling {compilation(each)}{why}", WORK)


def _key(record: Compiling) -> tuple[str, float]:
    return record.compile_id, record.since_at


def _place(record: Compiling | RecompileRecord) -> tuple[str | None, str | None, int | None]:
    return record.function, record.file, record.line


_Again = tuple[RecompileRecord, list[str], int]  # the guards that failed, and how often


def _recompiled(report: LiveReport, before: LiveReport) -> Iterator[_Again]:
    counted = {(*_place(record), record.compiled): record for record in before.recompiles}
    for record in report.recompiles:
        old = counted.get((*_place(record), record.compiled))
        times = record.count - (old.count if old is not None else 0)
        if times > 0:
            known = {each.subject: each.count for each in old.guards} if old is not None else {}
            failed = [each for each in record.guards if each.count > known.get(each.subject, 0)]
            yield record, [guard(each) for each in failed[:MAX_GUARDS]], times


def _because(guards: list[str]) -> str:
    return f": {'; '.join(guards)}" if guards else ""


def _ended(
    report: LiveReport, before: LiveReport, ended: Compiling, again: list[_Again], at: float
) -> Iterator[Event]:
    """A compilation that had been seen under way."""
    what, why = "compiled", [] if ended.why is None else [ended.why]
    for recompile, guards, _ in again:
        if _place(recompile) == _place(ended):
            what, why = "recompiled", guards or why
    new = report.compile.compilations[len(before.compile.compilations) :]
    record = next((each for each in new if each.compile_id == ended.compile_id), None)
    if record is not None:
        what = _NOT_COMPILED.get(record.outcome, what)
    elif what == "compiled":  # not recorded: the program has ended, or beyond what is listed
        if report.run.status != RUNNING:
            return
        what = "no longer compiling"
    took = [record.total_s] if record is not None and record.total_s is not None else []
    yield Event(at, f"{what} {compilation(ended)}{_because(why)}", WORK, took)


def _other_compilations(
    report: LiveReport, before: LiveReport, ended: int, again: int, at: float
) -> Iterator[Event]:
    """Those too short to be seen under way; recompilations are told by themselves."""
    graphs = report.summary.graphs - before.summary.graphs - max(ended, again)
    if graphs > 0:
        took_s = report.compile.total_s - before.compile.total_s
        yield Event(at, f"compiled {count(graphs, 'more graph')}", WORK, [max(0.0, took_s)])


def _breaks(report: LiveReport, before: LiveReport, at: float) -> Iterator[Event]:
    known = {_break_key(each) for each in before.breaks}
    for each in report.breaks:
        if _break_key(each) not in known:
            what = "gave up" if each.kind == "gave up" else "graph break"
            yield Event(at, f"{what} at {short_path(each.file, each.line)}: {each.reason}", BAD)


def _break_key(record: BreakRecord) -> tuple[str, str, str | None, int | None]:
    return record.kind, record.reason, record.file, record.line


def _limits(report: LiveReport, before: LiveReport, at: float) -> Iterator[Event]:
    hit = {_place(each) for each in before.recompiles if each.limit_hits}
    for each in report.recompiles:
        if each.limit_hits and _place(each) not in hit:
            where = recompiled(report, each)
            what = "raises" if each.limit_raised else "runs eagerly"
            yield Event(
                at, f"recompile limit reached: {where}: what fits no version of it {what}", BAD
            )


def found(report: LiveReport, state: str) -> str:
    """``"running, for 4 min 12 s: python train.py"``"""
    wall_s = report.run.wall_s
    age = "" if wall_s is None else f", {'for' if state == RUNNING else 'after'} {elapsed(wall_s)}"
    return f"{state}{age}{f': {report.run.command}' if report.run.command else ''}"
