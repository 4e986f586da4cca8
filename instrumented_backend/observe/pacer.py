"""Work on a thread of ours that leaves most of the time to the program's own."""

import time

BUSY_SHARE = 0.2  # of its own time that the thread works
MAX_NAP_S = 0.05


class Pacer:
    """Paused between two pieces of the work: all threads need the GIL."""

    def __init__(self) -> None:
        self.hurry = False  # somebody waits for the results
        self._worked_since = time.perf_counter()

    def pause(self) -> None:
        if self.hurry:
            return
        worked = time.perf_counter() - self._worked_since
        time.sleep(min(worked * (1 / BUSY_SHARE - 1), MAX_NAP_S))
        self._worked_since = time.perf_counter()
