"""Reports of programs that may still run: each file is read again when it has changed.

The files alone tell what there is, so that the programs may run on another machine.
"""

import os
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from instrumented_backend.records.live import LiveReport, read_live
from instrumented_backend.records.report import INTERRUPTED, RUNNING, RunSection
from instrumented_backend.records.version import ReportError

PATIENCE_S = 0.25  # of one look, for reading: its caller has a picture to draw
KEPT_MOMENTS = 600
RATE_OVER_S = 5.0
REMOVED_FOR_S = 60.0  # how long a report is kept whose file is gone
LATE_S = 60.0  # what processes of one run may start after each other
# Without a sign of life for three times what lies between two snapshots, nobody expects another.
QUIET_S, QUIET_PART = 30.0, 0.03

_LATEST_AT = 253_402_300_799.0  # the end of the year 9999
_TICK_S = 1e-6  # of a clock

# States. Whether a process died is known where it was seen to run on this machine.
ENDED, DIED, SILENT, UNREADABLE = "ended", "died", "silent", "unreadable"

_Stamp = tuple[int, int, int]


@dataclass(frozen=True)
class Moment:
    """How many graph calls there had been when a report was made, by the program's own clock."""

    at_s: float
    calls: int


@dataclass(eq=False)  # one is like no other
class FollowedReport:
    """One report file: what it held when it could last be read, and what has been seen of it."""

    path: Path
    report: LiveReport | None = None
    problem: str | None = None  # why the file, as it is now, cannot be read
    removed_s: float | None = None  # since when there is no file, by `time.monotonic`
    stamp: _Stamp | None = None
    changed_s: float = 0.0  # when its last change was seen, by `time.monotonic`
    age_s: float = 0.0  # how old the report was then
    is_alive: bool = False  # its process runs on this machine
    was_alive: bool = False
    moments: deque[Moment] = field(default_factory=lambda: deque(maxlen=KEPT_MOMENTS))

    def seen_ago_s(self, now_s: float) -> float:
        """How long ago the program made the report; ``now_s`` is `time.monotonic`."""
        return max(0.0, self.age_s + now_s - self.changed_s)

    def state(self, now_s: float) -> str:
        if self.report is None:
            return UNREADABLE
        run = self.report.run
        if run.status != RUNNING:
            return INTERRUPTED if run.status == INTERRUPTED else ENDED
        if self.is_alive:
            return RUNNING
        if self.was_alive:
            return DIED
        quiet_s = max(QUIET_S, QUIET_PART * (run.wall_s or 0.0))
        return SILENT if self.seen_ago_s(now_s) > quiet_s else RUNNING

    def last_seen_at(self) -> float:
        """The program's clock when it made the report; where that is no time, the file's."""
        seen_at = self.report.run.seen_at if self.report is not None else None
        if seen_at is not None and 0.0 <= seen_at <= _LATEST_AT:
            return seen_at
        return self.stamp[0] * 1e-9 if self.stamp else 0.0

    def latest(self) -> tuple[float, float] | None:
        """Graph calls a second, and over how many seconds up to the last report.

        At least `RATE_OVER_S`, where there are reports as old as that; None before there are two.
        """
        if len(self.moments) < 2:
            return None
        last = self.moments[-1]
        for before in reversed(list(self.moments)[:-1]):
            over_s = last.at_s - before.at_s
            if over_s >= RATE_OVER_S:
                break
        return (last.calls - before.calls) / over_s, over_s

    def rate(self) -> float | None:
        """Graph calls a second, of late."""
        latest = self.latest()
        return None if latest is None else latest[0]

    def rates(self, parts: int) -> list[float]:
        """Graph calls a second in equal parts of the time that was watched.

        Empty where that is less than two reports. Between two, calls are spread evenly.
        """
        if len(self.moments) < 2:
            return []
        moments = list(self.moments)
        part_s = (moments[-1].at_s - moments[0].at_s) / parts
        counts, after = [], 1
        for number in range(parts + 1):
            at_s = min(moments[0].at_s + number * part_s, moments[-1].at_s)
            while moments[after].at_s < at_s:
                after += 1
            left, right = moments[after - 1], moments[after]
            share = (at_s - left.at_s) / (right.at_s - left.at_s)
            counts.append(left.calls + share * (right.calls - left.calls))
        return [(counts[i + 1] - counts[i]) / part_s for i in range(parts)]


@dataclass(frozen=True)
class Update:
    """A new report, and the one of the same process whose place it took."""

    of: FollowedReport
    report: LiveReport
    before: LiveReport | None


class Follower:
    """Finds reports, and reads those that have changed, each time it is asked to look."""

    def __init__(
        self,
        paths: Callable[[], Iterable[Path]],
        is_alive: Callable[[RunSection], bool],
    ) -> None:
        """``paths`` says which files there are now; it may raise `ReportError`.

        ``is_alive`` says whether a process runs on this machine.
        """
        self._paths = paths
        self._is_alive = is_alive
        self._known: dict[Path, FollowedReport] = {}
        self._looked_s = 0.0
        self.waiting = 0  # files that have changed, and are not read yet
        self.problem: str | None = None  # why no files can be found

    def look(self) -> list[Update]:
        """Read what has changed, the latest first, for as long as there is patience."""
        begun_s = time.monotonic()
        stamps = self._stamps()
        self._forget_removed(stamps, begun_s)
        changed = [
            path
            for path, stamp in stamps.items()
            if path not in self._known or self._known[path].stamp != stamp
        ]
        changed.sort(key=lambda path: stamps[path], reverse=True)
        changes = []
        self.waiting = len(changed)
        for path in changed:
            changes += self._read(path, stamps[path])
            self.waiting -= 1
            if time.monotonic() - begun_s > PATIENCE_S:
                break
        self._looked_s = begun_s
        for known in self._known.values():
            if known.report is not None:
                known.is_alive = self._is_alive(known.report.run)
                known.was_alive = known.was_alive or known.is_alive
        return changes

    def all(self) -> list[FollowedReport]:
        """By rank and process."""
        return sorted(self._known.values(), key=_order)

    def current(self, now_s: float) -> list[FollowedReport]:
        """The reports of the run that is under way or, where none is, of the last one.

        What had ended before that began is left out.
        """
        reports = self.all()
        going_on = [each for each in reports if each.state(now_s) == RUNNING]
        if not going_on:
            going_on = sorted(reports, key=FollowedReport.last_seen_at)[-1:]
        since_at = min((_started_at(each) for each in going_on), default=0.0) - LATE_S
        return [each for each in reports if each in going_on or each.last_seen_at() >= since_at]

    def _stamps(self) -> dict[Path, _Stamp]:
        try:
            paths = list(self._paths())
        except ReportError as error:
            self.problem = str(error)
            return {}
        self.problem = None
        stamps = {}
        for path in paths:
            try:
                found = os.stat(path)
            except OSError:
                continue  # removed since it was listed
            stamps[path] = (found.st_mtime_ns, found.st_ino, found.st_size)
        return stamps

    def _forget_removed(self, stamps: dict[Path, _Stamp], now_s: float) -> None:
        for path, known in list(self._known.items()):
            if path in stamps:
                known.removed_s = None
                continue
            known.stamp = None
            if known.removed_s is None:
                known.removed_s = now_s
            elif now_s - known.removed_s > REMOVED_FOR_S:
                del self._known[path]

    def _read(self, path: Path, stamp: _Stamp) -> list[Update]:
        known = self._known.setdefault(path, FollowedReport(path))
        try:
            report = read_live(path)
        except ReportError as error:
            if not os.path.exists(path):
                return []  # removed since
            known.stamp, known.problem = stamp, error.problem
            return []
        before = known.report
        if before is not None and not _same_run(before, report):
            known = self._known[path] = FollowedReport(path)
            before = None
        known.report, known.stamp, known.problem = report, stamp, None
        known.changed_s = time.monotonic()
        known.age_s = max(0.0, time.time() - known.last_seen_at())
        if before is not None:  # it is new since the last look, whatever two machines' clocks say
            known.age_s = min(known.age_s, known.changed_s - self._looked_s)
        _add_moment(known, Moment(known.last_seen_at(), report.summary.graph_calls))
        return [Update(known, report, before)]


def _same_run(one: LiveReport, other: LiveReport) -> bool:
    """Of one process, and counted from the same moment on."""
    return (one.run.pid, one.run.started) == (other.run.pid, other.run.started)


def _add_moment(known: FollowedReport, moment: Moment) -> None:
    last = known.moments[-1] if known.moments else None
    if last is not None and (moment.at_s < last.at_s or moment.calls < last.calls):
        known.moments.clear()  # the clock was set back, or the counting began afresh
    elif last is not None and moment.at_s - last.at_s < _TICK_S:
        known.moments.pop()
    known.moments.append(moment)


def _order(known: FollowedReport) -> tuple[int, int, str]:
    run = known.report.run if known.report is not None else None
    return (run.rank, run.pid, "") if run is not None else (1 << 63, 0, str(known.path))


def _started_at(known: FollowedReport) -> float:
    """Seconds since 1970; 0 where the report doesn't say."""
    started = known.report.run.started if known.report is not None else None
    try:
        return datetime.fromisoformat(started).timestamp() if started else 0.0
    except (ValueError, OverflowError, OSError):
        return 0.0
