"""When the report's file is brought up to date while the program runs.

A thread of ours does it: a moment after each beginning and end of a compilation, and then at
growing intervals. It is begun by the first compilation, and sleeps where nothing has happened.
"""

import threading
import time
from collections.abc import Callable, Hashable

from instrumented_backend.observe.failures import Failures
from instrumented_backend.observe.observer import Observer

SOON_S = 0.3  # after a compilation has begun or ended
FIRST_INTERVAL_S, INTERVAL_GROWTH, LONGEST_INTERVAL_S = 1.0, 2.0, 10.0
LONGEST_SHARE = 0.01  # of the run, where that is longer
# Compilations that follow each other are waited for, or what they ask for would be the most of the
# work: each snapshot may take this share of the time since the last.
BUSY_SHARE = 0.01
STEADY_SHARE = 0.001  # the same where nobody has asked, as far as the longest interval allows
# Of the run, what is not made anew in each snapshot.
LISTING_SHARE = 0.0002  # eager ops by name and by line, which takes longer than all the rest
ESTIMATE_SHARE = 0.0004  # the ledger and the totals, but for those that somebody asked for
WORKING_SHARE = 0.1  # of a CPU; our own threads take a hundredth of that
PATIENCE_S = 2.0  # at the end, for a snapshot that is being written


class Stopped(BaseException):
    """The program ends, so what is being written is out of date. It is not kept as a failure."""


class Snapshots(Observer):
    """Calls ``take`` on a thread of its own, as often as `due_s` says."""

    def __init__(
        self,
        take: Callable[[], bool],
        change: Callable[[], Hashable],
        failures: Failures,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``take`` makes a snapshot, and tells whether that is where it belongs.

        It calls `go_on` now and then, which raises `Stopped`.

        ``change`` differs from the last time where there is something new to write.
        """
        self._take = take
        self._change = change
        self._failures = failures
        self._clock = clock
        self.wanted = False
        self.after_fork()

    def after_fork(self) -> None:
        """In the child: without a thread, until something is compiled."""
        self._thread: threading.Thread | None = None
        self._woken = threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        self._asked_s: float | None = None  # since when somebody wants one soon
        self.asked = False  # is the one that is being taken one of these
        self._stopped = False
        self._begun_s = self._clock()
        self._last: Hashable = None
        self._last_s = self._begun_s
        self._cost_s = self._apart_s = 0.0
        self._interval_s = FIRST_INTERVAL_S

    def soon(self) -> None:
        """Something has begun or ended that a reader wants to know of; called on any thread."""
        if not self.wanted or self._stopped:
            return
        if self._asked_s is None:
            self._asked_s = self._clock()
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="instrumented-snapshots", daemon=True
            )
            try:
                self._thread.start()
            except BaseException:  # the process may have no more threads now, and later have some
                self._thread = None
                raise
        else:
            self._woken.set()

    def apart(self, seconds: float) -> None:
        """Of the snapshot that is being taken, so much keeps to a budget of its own."""
        self._apart_s += seconds

    def go_on(self) -> None:
        """Raises `Stopped` if the program ends."""
        if self._stopped:
            raise Stopped

    def stop(self) -> None:
        """The last report follows, and nothing may be written over it."""
        self._stopped = True
        self._woken.set()
        # Not `join`, after which an interrupted thread is taken for one that has ended.
        self._idle.wait(PATIENCE_S)

    # --- The thread -------------------------------------------------------------------------------

    def due_s(self) -> float:
        """When the next is to be taken, on the clock."""
        regular_s = self._last_s + self._interval_s
        if self._asked_s is None:
            return regular_s
        soon_s = max(self._asked_s + SOON_S, self._last_s + self._cost_s / BUSY_SHARE)
        return min(regular_s, soon_s)

    def _run(self) -> None:
        with self._failures.guard("snapshots"):
            while not self._stopped:
                left_s = self.due_s() - self._clock()
                if left_s > 0:
                    self._woken.wait(left_s)
                    self._woken.clear()
                else:
                    self._one()

    def _one(self) -> None:
        self.asked = self._asked_s is not None
        self._asked_s = None  # what comes from now on is for the next one
        self._apart_s = 0.0
        start_s = time.thread_time()
        self._idle.clear()
        try:
            self.go_on()
            with self._failures.guard("a snapshot"):
                change = self._change()
                if change != self._last and self._take():
                    self._last = change
        except Stopped:
            return
        finally:
            self._idle.set()
        self._cost_s = max(0.0, time.thread_time() - start_s - self._apart_s)
        self._last_s = self._clock()
        longest_s = max(LONGEST_INTERVAL_S, LONGEST_SHARE * (self._last_s - self._begun_s))
        grown_s = FIRST_INTERVAL_S if self.asked else self._interval_s * INTERVAL_GROWTH
        self._interval_s = min(max(grown_s, self._cost_s / STEADY_SHARE), longest_s)


class Budget:
    """How often something is done that may take ``share`` of the run."""

    def __init__(self, share: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._share = share
        self._clock = clock
        self._next_s = clock()

    def allows(self) -> bool:
        return self._clock() >= self._next_s

    def spent(self, seconds: float) -> None:
        """It was done once more, in so many seconds."""
        self._next_s = self._clock() + seconds / self._share


class Busy:
    """Has the process been at work since it was asked last?"""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.process_time,
    ) -> None:
        self._clock, self._cpu = clock, cpu
        self._last = clock(), cpu()
        self._turns = 0

    def turns(self) -> int:
        """How often it had."""
        now = self._clock(), self._cpu()
        passed_s, worked_s = (new - old for new, old in zip(now, self._last, strict=True))
        self._turns += worked_s > WORKING_SHARE * passed_s
        self._last = now
        return self._turns
