"""Says once that a program spends its time recompiling the same functions."""

import logging
import os
import time
from collections import deque
from collections.abc import Callable

from instrumented_backend.records import RecompileRecord

WINDOW_S = 300.0
LIMIT = 0.10  # of the window

log = logging.getLogger("instrumented_backend")


class Stall:
    """Adds up the seconds of recompilations in the last five minutes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.clear()

    def clear(self) -> None:
        self._recent: deque[tuple[float, float, RecompileRecord | None]] = deque()
        self._sum_s = 0.0
        self._said = False

    def recompiled(self, seconds: float, record: RecompileRecord | None) -> None:
        """A function was recompiled in so many seconds; ``record`` has its guards."""
        if self._said:
            return
        now = self._clock()
        self._recent.append((now, seconds, record))
        self._sum_s += seconds
        while self._recent[0][0] <= now - WINDOW_S:
            self._sum_s -= self._recent.popleft()[1]
        if self._sum_s > LIMIT * WINDOW_S:
            self._said = True
            log.warning("%s", self._sentence())
            self._recent.clear()

    def _sentence(self) -> str:
        share = 100 * self._sum_s / WINDOW_S
        text = (
            f"{self._sum_s:.0f} s of the last {WINDOW_S / 60:.0f} minutes ({share:.0f} %) went into"
            " recompiling"
        )
        worst = self._worst()
        if worst is None:
            return text
        text += f", most of it of {worst.function}"
        if worst.file is not None:
            text += f" ({os.path.basename(worst.file)}:{worst.line})"
        guard = max(worst.guards, key=lambda guard: guard.count, default=None)
        if guard is None:
            return text
        values = " → ".join(guard.values) + (" → ..." if guard.more_values else "")
        text += f": {guard.subject}" + (f": {values}" if values else "")
        return f"{text}; cure: {guard.cure}" if guard.cure else text

    def _worst(self) -> RecompileRecord | None:
        """The function that took most of it."""
        by_function: dict[int, tuple[float, RecompileRecord]] = {}
        for _, seconds, record in self._recent:
            if record is not None:
                before = by_function.get(id(record), (0.0, record))[0]
                by_function[id(record)] = before + seconds, record
        return max(by_function.values(), key=lambda item: item[0])[1] if by_function else None
