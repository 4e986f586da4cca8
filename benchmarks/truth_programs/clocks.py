"""Clocks round the graphs of a program, which our figures are compared with."""

import functools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread, current_thread, main_thread
from typing import Any

from truth_programs.run import FIRST


class HostClock:
    """Round each graph of a run of ours, the host's clock. One run differs from the next by more
    than our figures may be off by.
    """

    def __init__(self) -> None:
        self.total_s = 0.0
        self.main_s = 0.0
        """Without the program's other threads: autograd's work for the main one."""
        self._outer_s = 0.0

    @property
    def own_s(self) -> float:
        """What the clock takes, of which ``total_s`` has some: so much later is one round it."""
        return self._outer_s - self.total_s

    def watch(self, kind: Any) -> None:
        _watch(kind, lambda compiled: _clocked(_clocked(compiled, self._add), self._add_outer))

    def _add(self, took_s: float) -> None:
        self.total_s += took_s
        if current_thread() is main_thread() or type(current_thread()) is not Thread:
            self.main_s += took_s

    def _add_outer(self, took_s: float) -> None:
        self._outer_s += took_s


def _clocked(compiled: Callable[..., Any], add: Callable[[float], None]) -> Callable[..., Any]:
    @functools.wraps(compiled)
    def call(*arguments: Any) -> Any:
        start = time.perf_counter()
        try:
            return compiled(*arguments)
        finally:
            add(time.perf_counter() - start)

    return call


class StreamClock:
    """Round each graph of a run of ours, torch's own events on the stream that it is called on.

    On ranks a stream waits for the other rank, for as long as the two happen to be apart in that
    run: no other process is a truth of it, and no clock of the host's.
    """

    main_s = None  # of the host's time it knows nothing
    own_s = 0.0

    def __init__(self) -> None:
        self._calls: list[tuple[Any, Any, Any]] = []

    @property
    def total_s(self) -> float:
        """Once all is done.

        Where a stream waits for the host, an event takes as long as it takes Python: as long as
        from the first to the second of two that follow each other.
        """
        return (
            sum(
                float(start.elapsed_time(end)) - float(before.elapsed_time(start))
                for before, start, end in self._calls
            )
            / 1e3
        )

    def watch(self, kind: Any) -> None:
        _watch(kind, self._timed)

    def _timed(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        from instrumented_backend.torch_compat.fx import is_fake

        @functools.wraps(compiled)
        def call(*arguments: Any) -> Any:
            if any(map(is_fake, arguments)):  # DDPOptimizer's, while it compiles
                return compiled(*arguments)
            before, start = _recorded(), _recorded()
            try:
                return compiled(*arguments)
            finally:
                self._calls.append((before, start, _recorded()))

        return call


def _watch(kind: Any, timed: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """``kind``: the class whose `_observed` makes what is called in a graph's place."""
    make = kind._observed

    def observed(graph: Any, compiled: Callable[..., Any], backward: bool) -> Any:
        return timed(make(graph, compiled, backward))

    kind._observed = observed


def _recorded() -> Any:
    import torch

    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


class GraphClock:
    """Round each graph of a run of plain Inductor, on any thread, and round each part."""

    def __init__(self) -> None:
        self.total_s = 0.0
        self.first_s = 0.0  # in the first times of all parts
        self.part_s: dict[str, float] = defaultdict(float)  # in all later times

    @contextmanager
    def watch(self, name: str, number: int) -> Iterator[None]:
        before_s, start = self.total_s, time.perf_counter()
        yield
        if number < FIRST:
            self.first_s += self.total_s - before_s
        elif current_thread() is main_thread():
            self.part_s[name] += time.perf_counter() - start

    def timed(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """As close to the call as Python can be: small graphs take some microseconds."""

        def call(*arguments: Any) -> Any:
            start = time.perf_counter()
            try:
                return compiled(*arguments)
            finally:
                self.total_s += time.perf_counter() - start

        return call
