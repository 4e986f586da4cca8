"""The figures of this moment, for those who ask at each step: a report is taken now and then."""

import contextlib
import sys
import threading
import time
from contextlib import AbstractContextManager

BETWEEN_S = 10.0
COST_SHARE = 0.001  # of the run, at most, that taking reports may be


class Figures:
    """`metrics_of` a report that is as old as its cost asks for."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._lock = threading.Lock()
        self._next_s = 0.0
        self._latest: dict[str, float] = {}

    def new(self, last: bool = False) -> dict[str, float] | None:
        """None where it is too early for new ones; there is always time for the ``last``."""
        start_s = time.monotonic()
        if not last and start_s < self._next_s:
            return None
        if not self._lock.acquire(blocking=False):  # another thread is at it
            return None
        try:
            self._latest = self._taken()
            end_s = time.monotonic()
            self._next_s = end_s + max(BETWEEN_S, (end_s - start_s) / COST_SHARE)
            return dict(self._latest)
        finally:
            self._lock.release()

    def latest(self) -> dict[str, float]:
        """New ones, or the last that were new."""
        new = self.new()
        return dict(self._latest) if new is None else new

    def _taken(self) -> dict[str, float]:
        backend = sys.modules.get("instrumented_backend.backend")
        if backend is None:
            return {}  # nobody has asked for it; importing it takes a second
        with guard():
            return backend.metrics(self._prefix)  # type: ignore[no-any-return]
        return {}


def guard() -> AbstractContextManager[object]:
    """Round what is ours in a training: a failure is said once, and the training goes on."""
    backend = sys.modules.get("instrumented_backend.backend")
    if backend is None:
        return contextlib.nullcontext()
    return backend.contained("metrics")  # type: ignore[no-any-return]
