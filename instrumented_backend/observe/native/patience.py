"""How long a program waits for its native part: as long as a build takes, and while one goes on."""

import threading
import time
from collections.abc import Callable

from instrumented_backend.observe.native import build
from instrumented_backend.observe.native.compiler import working_s

LOOK_S = 0.5
WORKS = 0.05  # of a core: what a compiler gets at least on a busy machine, unless it hangs


class Patience:
    """From when the build begins. On a busy machine it takes longer, and the compiler works on."""

    def __init__(
        self,
        working_s: Callable[[], float] = working_s,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``working_s`` tells the seconds that compilers have computed so far."""
        self._working_s = working_s
        self._clock = clock
        self._began_s = clock()
        self._is_over = False

    def wait(self, done: threading.Event, patience_s: float) -> None:
        """Until it is there, for ``patience_s`` at most, and in all no longer than makes sense."""
        start_s = self._clock()
        usual_s = self._began_s + build.PATIENCE_S
        # Not `join`, after which an interrupted thread is taken for one that has ended.
        if done.wait(max(0.0, min(start_s + patience_s, usual_s) - start_s)) or self._is_over:
            return  # each call of a graph comes here until it is there
        end_s = min(start_s + patience_s, self._began_s + build.LIMIT_S)
        before_s = self._working_s()
        while not self._is_over and self._clock() < end_s and not done.wait(LOOK_S):
            worked_s = self._working_s()
            self._is_over = worked_s - before_s < WORKS * LOOK_S
            before_s = worked_s
