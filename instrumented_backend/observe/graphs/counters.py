"""Whose compilation moved Inductor's and Dynamo's process-wide counters, and by how much."""

import threading
from typing import Generic, TypeVar

from instrumented_backend.observe.observer import Observer
from instrumented_backend.torch_compat import dynamo, inductor_metrics

Owner = TypeVar("Owner")
Counts = dict[tuple[str, str], int]  # (group, counter) → how much it moved

# The group under which the fields of Inductor's CachedMetricsHelper are kept.
METRICS_GROUP = "inductor_metrics"


def read_counters() -> Counts:
    """The helper's fields, and every counter of ``torch._dynamo.utils.counters``."""
    values: Counts = {
        (METRICS_GROUP, name): value for name, value in inductor_metrics.values().items()
    }
    for group, members in list(dynamo.counters().items()):
        for name, value in list(members.items()):
            if isinstance(value, int):
                values[group, str(name)] = int(value)  # a report has no truth for a number
    return values


def add(total: Counts, moved: Counts) -> None:
    for key, value in moved.items():
        total[key] = total.get(key, 0) + value


def nested(counts: Counts) -> dict[str, dict[str, int]]:
    """``{("inductor", "fxgraph_cache_hit"): 2}`` → ``{"inductor": {"fxgraph_cache_hit": 2}}``."""
    groups: dict[str, dict[str, int]] = {}
    for (group, name), value in counts.items():
        groups.setdefault(group, {})[name] = value
    return groups


class CounterLedger(Observer, Generic[Owner]):
    """Credits every movement of the counters to one owner, or to ``outside``.

    The counters are read whenever a compilation starts or ends. What has moved since the last
    reading belongs to the innermost compilation under way on this thread, or, where this thread
    has none and just one other is compiling, to that one. Nothing is credited twice, so that
    the owners' sums and ``outside`` add up to the process's totals, for nested compilations too.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[int, list[tuple[Owner, Counts]]] = {}  # by thread, innermost last
        self._last: Counts = {}
        self.outside: Counts = {}

    def reset(self) -> None:
        """Leave out what the counters hold already."""
        with self._lock:
            self._last = read_counters()
            self.outside = {}

    def after_fork(self) -> None:
        """In the child: only the forking thread exists, and it compiles nothing."""
        self._lock = threading.Lock()
        self._open.clear()

    def enter(self, owner: Owner, counts: Counts) -> None:
        """``owner`` starts to compile on this thread; what it moves goes to ``counts``."""
        with self._lock:
            try:
                self._settle()
            finally:
                self._open.setdefault(threading.get_ident(), []).append((owner, counts))

    def leave(self) -> None:
        """This thread's innermost compilation ends."""
        with self._lock:
            try:
                self._settle()
            finally:
                thread = threading.get_ident()
                self._open[thread].pop()
                if not self._open[thread]:
                    del self._open[thread]

    def credit(self, counts: Counts) -> None:
        """What moved since the last reading goes to ``counts``: work that trails a compilation."""
        with self._lock:
            self._settle(counts)

    def settle(self) -> None:
        """Credit what has moved so far, before a report is made.

        Where several other threads compile, it stays theirs: they credit it when they are done.
        """
        with self._lock:
            if threading.get_ident() in self._open or len(self._open) <= 1:
                self._settle()

    def current(self) -> Owner | None:
        """What this thread is compiling."""
        stack = self._open.get(threading.get_ident())
        return stack[-1][0] if stack else None

    def _settle(self, counts: Counts | None = None) -> None:
        now = read_counters()
        # A counter that fell was reset by the program: what it shows has moved since then.
        moved = {
            key: value - before if value >= (before := self._last.get(key, 0)) else value
            for key, value in now.items()
            if value != self._last.get(key, 0)
        }
        self._last = now
        if moved:
            add(self._owner() if counts is None else counts, moved)

    def _owner(self) -> Counts:
        stack = self._open.get(threading.get_ident())
        if stack is None and len(self._open) == 1:
            stack = next(iter(self._open.values()))
        return stack[-1][1] if stack else self.outside


def moved(counts: Counts) -> dict[str, dict[str, int]]:
    """Dynamo's and Inductor's groups of ``counts`` that moved, without the helper's fields."""
    return nested(
        {key: value for key, value in counts.items() if value and key[0] != METRICS_GROUP}
    )


def metrics(counts: Counts) -> dict[str, int]:
    """All the helper's fields, those that did not move as 0."""
    return {name: counts.get((METRICS_GROUP, name), 0) for name in inductor_metrics.fields()}
