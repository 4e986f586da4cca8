"""What is being compiled now: for the report, and as lines of the log while it happens."""

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from instrumented_backend.observe.compile.compiled import Function
from instrumented_backend.observe.compile.recompiles import guard_place
from instrumented_backend.observe.messages.guards import FailedGuard
from instrumented_backend.observe.messages.reasons import BreakReason
from instrumented_backend.records import CompileRecord, Compiling
from instrumented_backend.records.compilation import longest_first
from instrumented_backend.records.functions import resumed

log = logging.getLogger("instrumented_backend")

BEGINNINGS = frozenset({"dynamo", "entire_backward_compile"})
# By then Dynamo has said why it compiles again, if it does.
_DECIDED = "backend_compile"
_BACKWARD = "entire_backward_compile"
_OUTCOMES = {"compiled": "compiled", "skipped": "gave up", "failed": "failed to compile"}


class _UnderWay:
    """One compilation on its thread, from its mark on."""

    def __init__(self, name: str, compiling: Compiling, began_s: float) -> None:
        self.name = name  # of the mark
        self.compiling = compiling
        self.began_s = began_s
        self.outcome = "compiled"
        self.said = False


class LiveLog:
    """Takes in the marks of time that begin and end a compilation, on the thread that compiles.

    Lines are said at INFO: one where a compilation begins, with the guard that failed if it is
    another of the same function; one where it ends, with the seconds; one for each cause of a graph
    break. Phases and look-ups in caches are DEBUG.
    """

    def __init__(
        self,
        changed: Callable[[], None],
        place: Callable[[str | None, bool], Function | None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """``changed`` is called when a compilation begins or ends.

        ``place`` knows the function of a compile id that begins, and whether that is its backward;
        None: it is none of ours.
        """
        self._changed = changed
        self._place = place
        self._clock = clock
        self._threads: dict[int, list[_UnderWay]] = {}

    def clear(self) -> None:
        """In a forked child: no other thread has come along."""
        self._threads.clear()

    def compiling(self) -> list[Compiling]:
        """The outermost one of each thread."""
        return [
            Compiling(**vars(under_way[0].compiling))
            for under_way in list(self._threads.values())
            if under_way
        ]

    def mark(self, event: dict[str, Any]) -> None:
        """One of torch's marks of time, its start (``ph`` is "B") or its end ("E")."""
        name = event["name"]
        if name in BEGINNINGS:
            if event["ph"] == "B":
                self._begin(name, (event.get("args") or {}).get("compile_id"))
            else:
                self._end(name)
        elif name == _DECIDED and event["ph"] == "B":
            self._say_beginning()

    def recompiled(self, guards: Sequence[FailedGuard]) -> None:
        """Dynamo says why this thread compiles a function again."""
        under_way = self._innermost()
        if under_way is not None and guards:
            compiling, guard = under_way.compiling, guards[0]
            compiling.why = guard.words
            compiling.guard_file, compiling.guard_line = guard_place(guard, compiling.file)
            self._say_beginning()
            self._changed()

    def outcome(self, outcome: str) -> None:
        """Of this thread's compilation, a moment before it ends."""
        under_way = self._innermost()
        if under_way is not None:
            under_way.outcome = outcome

    def broke(self, found: BreakReason) -> None:
        """The first meeting with a cause of graph breaks."""
        if log.isEnabledFor(logging.INFO):
            frame = found.frame
            at = "" if frame is None else f" at {_at(frame.file, frame.line)}"
            inside = f" in {frame.function}" if frame is not None and frame.function else ""
            log.info("graph break%s%s: %s", at, inside, found.reason.text)

    def looked_up(self, name: str, compile_id: str) -> None:
        """``"fx_graph_cache_miss"``: a look-up in one of the caches."""
        if log.isEnabledFor(logging.DEBUG):
            cache, _, state = name.rpartition("_cache_")
            if cache:
                log.debug("%s: %s cache: %s", compile_id, cache.replace("_", " "), state)

    def finished(self, record: CompileRecord) -> None:
        """With the seconds of its phases."""
        if log.isEnabledFor(logging.DEBUG):
            phases = longest_first(record.phases_s)
            listed = ", ".join(f"{name.removesuffix('_s')} {took:.2f} s" for name, took in phases)
            log.debug("%s, %s: %s", record.compile_id, record.direction, listed or "no phases")

    # --- On the thread that compiles --------------------------------------------------------------

    def _begin(self, name: str, compile_id: str | None) -> None:
        backward = name == _BACKWARD
        place = self._place(compile_id, backward)
        if place is None:
            return
        direction = "backward" if backward else "forward"
        compiling = Compiling(compile_id or "?", *place, since_at=time.time(), direction=direction)
        under_way = _UnderWay(name, compiling, self._clock())
        self._threads.setdefault(threading.get_ident(), []).append(under_way)
        # Of a first one there is nothing more to come.
        if backward or (compile_id or "").rpartition("/")[2] == "0":
            self._say_beginning()
        self._changed()

    def _end(self, name: str) -> None:
        thread = threading.get_ident()
        stack = self._threads.get(thread)
        if not stack or all(one.name != name for one in stack):
            return
        self._say_beginning()
        under_way = stack.pop()
        while under_way.name != name:
            under_way = stack.pop()
        if not stack:
            del self._threads[thread]
        if log.isEnabledFor(logging.INFO):
            took = self._clock() - under_way.began_s
            verb = _OUTCOMES.get(under_way.outcome, under_way.outcome)
            link = "in" if under_way.outcome == "compiled" else "after"
            log.info("%s %s %s %s", verb, _what(under_way), link, _seconds(took))
        self._changed()

    def _innermost(self) -> _UnderWay | None:
        stack = self._threads.get(threading.get_ident())
        return stack[-1] if stack else None

    def _say_beginning(self) -> None:
        under_way = self._innermost()
        if under_way is None or under_way.said:
            return
        under_way.said = True
        if log.isEnabledFor(logging.INFO):
            reason = under_way.compiling.why
            log.info("compiling %s%s", _what(under_way), f" again: {reason}" if reason else "")


def _what(under_way: _UnderWay) -> str:
    """``"forward (train.py:39)"``"""
    compiling = under_way.compiling
    of = "the backward of " if under_way.name == _BACKWARD else ""
    name, line = resumed(compiling.function or "a graph")
    if line is None:
        line = compiling.line
    else:
        of += "the rest of "
    if compiling.file is None:
        return f"{of}{name}"
    return f"{of}{name} ({_at(compiling.file, line)})"


def _at(file: str, line: int | None) -> str:
    name = os.path.basename(file)
    return name if line is None else f"{name}:{line}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
