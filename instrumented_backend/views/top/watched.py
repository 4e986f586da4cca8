"""What is known of the processes that are watched: the state that the live view draws."""

import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from instrumented_backend.records import Compiling
from instrumented_backend.records.follow import (
    DIED,
    SILENT,
    UNREADABLE,
    FollowedReport,
    Follower,
    Update,
)
from instrumented_backend.records.report import INTERRUPTED, RUNNING
from instrumented_backend.units import elapsed
from instrumented_backend.views.names import compilation, why
from instrumented_backend.views.top.events import BAD, PLAIN, Event, events, found
from instrumented_backend.views.top.names import Label, labels, together

KEPT_EVENTS = 500
TOGETHER_S = 10.0  # what happens to several processes within this is one event
_State = tuple[str, str | None, bool]  # with what cannot be read, and whether its file is gone
_Events = list[tuple[FollowedReport, Event]]
_TROUBLES = (DIED, INTERRUPTED, SILENT, UNREADABLE)


@dataclass
class UnderWay:
    """One compilation that goes on, in one process or in several at once."""

    what: str
    why: str | None
    for_s: float  # the longest
    since_at: float
    who: list[Label] = field(default_factory=list)


class Watched:
    """The reports of one place, with what has happened since watching began."""

    def __init__(self, name: str, follower: Follower) -> None:
        self.name = name
        self.log: deque[Event] = deque(maxlen=KEPT_EVENTS)
        self.reports: list[FollowedReport] = []
        self.left_out = 0  # reports of earlier runs
        self.now_s = 0.0  # of `time.monotonic`
        self.now_at = 0.0  # seconds since 1970
        self._follower = follower
        self._states: dict[FollowedReport, _State] = {}

    @property
    def waiting(self) -> int:
        """Files that are not read yet."""
        return self._follower.waiting

    @property
    def problem(self) -> str | None:
        return self._follower.problem

    def look(self) -> list[Event]:
        """What is new since the last look."""
        changes = self._follower.look()
        self.now_s, self.now_at = time.monotonic(), time.time()
        self.reports = self._follower.current(self.now_s)
        self.left_out = len(self._follower.all()) - len(self.reports)
        names = labels(self.reports)
        happened = [
            (event, names[change.of])
            for change in changes
            if change.of in names
            for event in events(change.report, change.before)
        ]
        happened.sort(key=lambda entry: entry[0].at)
        came, became = self._changed_states(changes)
        of_states = [[(event, names[known]) for known, event in part] for part in (came, became)]
        gathered = _gathered([*of_states[0], *happened, *of_states[1]])
        for event in gathered:
            self._keep(event)
        return gathered

    def states(self) -> Counter[str]:
        return Counter(each.state(self.now_s) for each in self.reports)

    def in_state(self, *states: str) -> list[FollowedReport]:
        return [each for each in self.reports if each.state(self.now_s) in states]

    def all_have_ended(self) -> bool:
        """Nobody will write here again, as far as that can be known."""
        going_on = self.in_state(RUNNING, SILENT, UNREADABLE)
        return bool(self.reports) and not self.waiting and not going_on

    def compiling(self) -> list[UnderWay]:
        """What is being compiled now, the longest first."""
        names = labels(self.reports)
        found: dict[tuple[str, str | None], UnderWay] = {}
        for known in self.in_state(RUNNING):
            for each, for_s in under_way(known, self.now_s):
                key = compilation(each), why(each)
                since_at = self.now_at - for_s
                entry = found.setdefault(key, UnderWay(*key, 0.0, since_at))
                entry.for_s = max(entry.for_s, for_s)
                entry.since_at = min(entry.since_at, since_at)
                entry.who.append(names[known])
        return sorted(found.values(), key=lambda entry: entry.for_s, reverse=True)

    def _changed_states(self, changes: Sequence[Update]) -> tuple[_Events, _Events]:
        """Of processes that are new here, and of others."""
        changed = {change.of for change in changes}
        states: dict[FollowedReport, _State] = {}
        came: _Events = []
        became: _Events = []
        for known in self.reports:
            state, removed = known.state(self.now_s), known.removed_s is not None
            states[known] = (state, known.problem, removed)
            if known not in self._states:
                came.append((known, Event(self.now_at, _came(known, state), _kind(state))))
                continue
            old_state, old_problem, was_removed = self._states[known]
            if state != old_state:
                at = known.last_seen_at() if known in changed else self.now_at
                became.append((known, Event(at, _became(known, state, self.now_s), _kind(state))))
            if known.problem not in (None, old_problem):
                said = f"cannot be read: {known.problem}"
                became.append((known, Event(self.now_at, said, BAD)))
            if removed and not was_removed:
                said = f"its report was removed: {known.path}"
                became.append((known, Event(self.now_at, said, BAD)))
        self._states = states
        return came, became

    def _keep(self, event: Event) -> None:
        """Keep the event, joined with an equal one of other processes a moment ago."""
        for old in reversed(self.log):
            if abs(event.at - old.at) > TOGETHER_S:
                break
            if old.key == event.key and not set(old.who) & set(event.who):
                old.who += event.who
                old.seconds += event.seconds
                return
        self.log.append(event)


def under_way(known: FollowedReport, now_s: float) -> list[tuple[Compiling, float]]:
    """What one process compiles, and for how long until now, whatever two machines' clocks say."""
    if known.report is None:
        return []
    ago_s = known.seen_ago_s(now_s)
    return [
        (each, max(0.0, known.last_seen_at() - each.since_at) + ago_s)
        for each in known.report.compiling
    ]


def _gathered(new: Iterable[tuple[Event, Label]]) -> list[Event]:
    """What several processes met is one."""
    found: dict[tuple[str, str, str], Event] = {}
    several = []
    for event, who in new:
        same = found.get(event.key)
        if same is None or who in same.who:
            event.who.append(who)
            found[event.key] = event
            several.append(event)
        else:
            same.who.append(who)
            same.seconds += event.seconds
    return several


def _kind(state: str) -> str:
    return BAD if state in _TROUBLES else PLAIN


def _came(known: FollowedReport, state: str) -> str:
    if known.report is None:
        return f"cannot be read: {known.problem}"
    return found(known.report, state)


def _became(known: FollowedReport, state: str, now_s: float) -> str:
    ago = elapsed(known.seen_ago_s(now_s))
    if state == DIED:
        return f"died: its process is gone, and its report is of {ago} before"
    if state == SILENT:
        return f"silent: no report for {ago}; it does nothing, died, or cannot write"
    if state == RUNNING:
        return "running again"
    if known.report is not None:
        return found(known.report, state)
    return state


def who(event: Event, of: int) -> str:
    """``"ranks 0-2"``; nothing where there is but one process, or where all are meant."""
    if of < 2:
        return ""
    return "all" if len(event.who) == of else together(event.who)
