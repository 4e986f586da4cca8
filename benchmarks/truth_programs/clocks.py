"""Clocks round the graphs of a program, which our figures are compared with."""

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, Thread, current_thread, main_thread
from typing import Any

from truth_programs.run import FIRST


class HostClock:
    """Round each graph of a run of ours, the host's clock. One run differs from the next by more
    than our figures may be off by.

    One clock is inside of what our package puts in a graph's place, and one round it: what is ours
    in between is no graph's, but it is measured from somewhere there to somewhere there.
    """

    def __init__(self) -> None:
        self._inside, self._outside = _Stopwatch(), _Stopwatch()
        self.main_s = 0.0
        """Without the program's other threads: autograd's work for the main one."""

    @property
    def total_s(self) -> float:
        """While any graph runs, on whichever thread."""
        return self._inside.total_s

    @property
    def own_s(self) -> float:
        """So much more is what the program calls in their place."""
        return self._outside.total_s - self._inside.total_s

    def watch(self, kind: Any) -> None:
        def outside(observed: Callable[..., Any]) -> Callable[..., Any]:
            return _clocked(observed, self._outside)

        _watch(kind, outside, self.inside)

    def inside(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        return _clocked(compiled, self._inside, self._add)

    def _add(self, took_s: float) -> None:
        if current_thread() is main_thread() or type(current_thread()) is not Thread:
            self.main_s += took_s


class _Stopwatch:
    """Runs while anything is under way, on any thread."""

    def __init__(self) -> None:
        self.total_s = 0.0
        self._since = 0.0
        self._under_way = 0
        self._lock = Lock()

    def start(self) -> None:
        with self._lock:
            self._under_way += 1
            if self._under_way == 1:
                self._since = time.perf_counter()

    def stop(self) -> None:
        with self._lock:
            self._under_way -= 1
            if not self._under_way:
                self.total_s += time.perf_counter() - self._since


def _clocked(
    called: Callable[..., Any],
    stopwatch: _Stopwatch,
    add: Callable[[float], None] = lambda took_s: None,
) -> Callable[..., Any]:
    @functools.wraps(called)
    def call(*arguments: Any) -> Any:
        start = time.perf_counter()  # what these clocks take is a graph's to what is ours, too
        stopwatch.start()
        try:
            return called(*arguments)
        finally:
            stopwatch.stop()
            add(time.perf_counter() - start)

    return call


class StreamClock:
    """Round each graph of a run of ours, torch's own events on the stream that it is called on.

    On ranks a stream waits for the other rank, for as long as the two happen to be apart in that
    run: no other process is a truth of it, and no clock of the host's. Two events are inside of
    what is ours, and two round it. The host's time is by a clock round the inner two.
    """

    def __init__(self) -> None:
        self._host = HostClock()
        self._inside: list[tuple[Any, Any]] = []
        self._outside: list[tuple[Any, Any]] = []

    @property
    def main_s(self) -> float:
        return self._host.main_s

    @property
    def total_s(self) -> float:
        """Once all is done."""
        return _elapsed_s(self._inside)

    @property
    def own_s(self) -> float:
        return _elapsed_s(self._outside) - self.total_s

    def watch(self, kind: Any) -> None:
        def timed(called: Callable[..., Any], into: list[tuple[Any, Any]]) -> Callable[..., Any]:
            from instrumented_backend.torch_compat.fx import is_fake

            @functools.wraps(called)
            def call(*arguments: Any) -> Any:
                if any(map(is_fake, arguments)):  # DDPOptimizer's, while it compiles
                    return called(*arguments)
                start = _recorded()
                try:
                    return called(*arguments)
                finally:
                    into.append((start, _recorded()))

            return call

        _watch(
            kind,
            lambda observed: timed(observed, self._outside),
            lambda compiled: self._host.inside(timed(compiled, self._inside)),
        )


def _elapsed_s(events: list[tuple[Any, Any]]) -> float:
    return sum(float(start.elapsed_time(end)) for start, end in events) / 1e3


Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


def _watch(kind: Any, timed: Wrap, inside: Wrap) -> None:
    """``kind``: the class whose `_observed` makes what is called in a graph's place."""
    make = kind._observed

    def observed(graph: Any, compiled: Callable[..., Any], backward: bool) -> Any:
        return timed(make(graph, inside(compiled), backward))

    kind._observed = observed


def _recorded() -> Any:
    import torch

    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


class GraphClock:
    """Round each graph of a run of plain Inductor, on any thread."""

    def __init__(self) -> None:
        self.total_s = 0.0
        self.first_s = 0.0  # in the first times of all parts
        self.parts: set[str] = set()
        """Those in which graphs are called."""

    @contextmanager
    def watch(self, name: str, number: int) -> Iterator[None]:
        before_s = self.total_s
        yield
        if self.total_s > before_s:
            self.parts.add(name)
        if number < FIRST:
            self.first_s += self.total_s - before_s

    def timed(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """As close to the call as Python can be: small graphs take some microseconds."""

        def call(*arguments: Any) -> Any:
            start = time.perf_counter()
            try:
                return compiled(*arguments)
            finally:
                self.total_s += time.perf_counter() - start

        return call
