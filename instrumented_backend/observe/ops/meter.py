"""The op meter: which ops the program runs outside compiled regions, how long, on which line.

The native part (`_op_meter.cpp`) costs a few percent while its callback is there and nothing when
it is gone, so that ``INSTRUMENTED_OPS=auto`` has it there in windows only. A window opens with the
first graph call after a compilation and stays for some rounds of the program's loop, for longer as
long as it has cost less than `BUDGET` of the run; a timer opens the next one, at growing intervals.
A round lasts from one call of the graph that opened the window to the next: the user marks no
steps.
"""

import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from instrumented_backend.observe.failures import Failures
from instrumented_backend.observe.native import build as native
from instrumented_backend.observe.native.gate import Gate
from instrumented_backend.observe.ops.captured import GraphOps
from instrumented_backend.observe.ops.lines import Line, Lines, Place
from instrumented_backend.observe.ops.op_counter import OpCounter
from instrumented_backend.records import notes
from instrumented_backend.torch_compat import dynamo

BUDGET = 0.004  # of the time that the program runs, by the costs below
ALWAYS_AFFORDABLE_S = 0.005  # nothing beside importing torch: short runs are seen whole
ROUNDS_AFTER_COMPILE = 6
ROUNDS = 3
LONGEST_WINDOW_CALLS = 10_000  # without a round: the graph that opened it is not called again
FIRST_INTERVAL_S, INTERVAL_GROWTH, LONGEST_INTERVAL_S = 0.5, 1.5, 600.0
# What a window costs (docs/costs.md), in seconds: each event, and besides for each that is
# an op, an autograd node; switching a thread's events off and on; each graph call. Samples of
# lines are timed, by their thread's CPU clock, which a busy machine does not push on. They take
# `SAMPLE_S` where the others were measured; by as much as they take longer, the machine is slower,
# or the program's own data fill its caches.
EVENT_S, OP_S, NODE_S, SILENCE_S, CALL_S = 0.15e-6, 0.3e-6, 2.5e-6, 0.5e-6, 2e-6
SAMPLE_S = 5.5e-6
BUILD_PATIENCE_S = 60.0
CALLS_UNTIL_COUNTED = 2_000


@dataclass(frozen=True)
class EagerOps:
    """Ops of one name that ran in one gap: after calls of one graph, until the next region.

    ``ordinal`` tells the first op of that name in a gap from its second, up to 64. Gaps are
    numbered as in `keys`.
    """

    name: str
    gap: int
    ordinal: int
    count: int
    time_ns: int


@dataclass(frozen=True)
class Observed:
    """What the windows saw."""

    entries: list[EagerOps]
    gaps: list[native.Sums]
    lines: dict[Place, dict[Line, list[float]]]
    whole: bool  # one window, from the first call on, that never closed
    lost: int  # ops that were not booked, because there were too many names
    elapsed_s: float = 0.0  # since the first window opened, compilations apart


class OpMeter:
    """Opens and closes windows as graphs are called, and reads what they saw.

    ``active`` is true while a window is open or due: graph calls then go through `enter` and
    `leave`. Ops are not observed before the first call of a graph.
    """

    def __init__(
        self,
        mode: str,
        failures: Failures,
        print_missing: bool,
        gate: Gate,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.active = False
        self._clock = clock  # in seconds
        self._gate = gate
        self._paused = False
        self.unavailable: str | None = "INSTRUMENTED_OPS=off" if mode == "off" else None
        self._mode = mode
        self._failures = failures
        self._lock = threading.RLock()
        self._lib: Any = None
        self._loader: threading.Thread | None = None
        self._counter = OpCounter()
        self._lines = Lines(failures, print_missing)
        self._sample_each = print_missing
        self._sampler = native.Sampler(self._lines.sample)
        self._compiling = 0  # threads, and compilations inside compilations
        self._patched = False
        self._forget()

    def _forget(self) -> None:
        self._is_open = False
        self._due = False
        self._leader = 0
        self._calls = self._calls_at_round = 0  # through `enter`, in all windows
        self._rounds = self._rounds_wanted = 0
        self._windows = 0
        self._interval_s = FIRST_INTERVAL_S
        self._started_s: float | None = None
        self._compiled_s = 0.0
        self._work_before = native.Work()
        self._timer: threading.Timer | None = None

    # --- Start and end --------------------------------------------------------------------------

    def start(self) -> None:
        """Get the native part, building it beside the program if need be; once a process."""
        if self._mode == "off" or self._loader is not None:
            return
        if not self._patched:
            self._patched = True
            dynamo.patch_compile_callbacks(self.compiling)
        self._loader = threading.Thread(
            target=self._load, name="instrumented_backend op meter", daemon=True
        )
        self._loader.start()

    def _load(self) -> None:
        with self._failures.guard("ops"):
            try:
                lib = native.load()
            except native.NativeError as error:
                self.unavailable = f"no op meter: {error}"
                self._failures.note(notes.OPS_UNKNOWN, self.unavailable)
                return
            lib.op_meter_sample(self._sampler, self._sample_each)
            self._gate.regions(lib.op_meter_enter, lib.op_meter_leave)
            # Without the lock, which a thread may hold that waits for this one.
            self._lib = lib
            if self._due:
                self._set_active(True)

    def stop(self) -> None:
        """For good: no callback of ours may run while the interpreter goes down."""
        with self._lock:
            self._close()
            if self._lib is not None:
                self._lib.op_meter_sample(native.Sampler(), False)
            self._lib = None

    def reset(self) -> None:
        """Forget what was seen; the next window opens with the next call of a graph."""
        with self._lock:
            self._close()
            self._forget()
            if self._lib is not None:
                self._lib.op_meter_clear()
                self._work_before = self._work()
            self._lines.clear()
            self._want(ROUNDS_AFTER_COMPILE)

    def after_fork(self) -> None:
        """In the child, where no other thread exists, and which has compiled nothing itself."""
        self._lock = threading.RLock()
        self._forget()
        if self._lib is not None:
            self._lib.op_meter_after_fork()
            self._work_before = self._work()
        self._compiling = 0
        self._paused = False
        self._set_active(False)
        self._counter.after_fork()
        self._lines.after_fork()
        if self._lib is None and self._mode != "off":
            self._loader = None

    # --- Compilations ---------------------------------------------------------------------------

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """Ops that this thread runs meanwhile are the compiler's, not the program's."""
        lib = self._lib
        if lib is not None:
            lib.op_meter_quiet(1)
        start = self._clock()
        self._compiling += 1
        try:
            yield
        finally:
            self._compiling -= 1
            if lib is not None:
                lib.op_meter_quiet(-1)
            if not self._compiling:
                self._compiled_s += self._clock() - start
            self._want(ROUNDS_AFTER_COMPILE)

    def add_graph(self, gm: Any) -> GraphOps | None:
        """Take note of the ops in a graph."""
        if self._mode == "off":
            return None
        ops = self._counter.add(gm)
        if self._counter.waiting > CALLS_UNTIL_COUNTED:
            threading.Thread(target=self._count_in_background, daemon=True).start()
        return ops

    def _count_in_background(self) -> None:
        with self._failures.guard("captured ops"):
            self.count_graphs()

    def count_graphs(self) -> None:
        """Find the forward ops of all graphs so far."""
        if self._loader is not None and self._loader is not threading.current_thread():
            self._loader.join(BUILD_PATIENCE_S)
        lib = self._lib
        if lib is None:
            return

        def count(run: Callable[[], Any]) -> int:
            handle = lib.op_count_begin()
            try:
                run()
                return int(lib.op_count_take())
            finally:
                lib.op_count_end(handle)

        lib.op_meter_quiet(1)
        try:
            self._counter.count_all(count)
        finally:
            lib.op_meter_quiet(-1)

    # --- Windows --------------------------------------------------------------------------------

    def enter(self, key: int) -> None:
        """A region begins on this thread; `leave` is to be called in any case."""
        if self._lib is None and self._mode == "always" and self._loader is not None:
            self._loader.join(BUILD_PATIENCE_S)
        if not self._is_open or key == self._leader:
            with self._failures.guard("op meter"):
                self._round(key)
        elif self._calls - self._calls_at_round > LONGEST_WINDOW_CALLS:
            self._leader = key
        lib = self._lib
        if lib is not None and self._is_open:
            self._calls += 1
            lib.op_meter_enter()

    def leave(self, key: int) -> None:
        lib = self._lib
        if lib is not None:
            lib.op_meter_leave(key)

    def _want(self, rounds: int) -> None:
        """A window is due, or the one that is open is to last this much longer."""
        if self._mode == "off" or self.unavailable is not None:
            return
        with self._lock:
            self._due = True
            self._rounds = 0
            self._rounds_wanted = max(self._rounds_wanted, rounds)
            # Always: the first call waits for the native part, or the count would not be exact.
            self._set_active(self._lib is not None or self._mode == "always")

    def _round(self, key: int) -> None:
        with self._lock:
            self._calls_at_round = self._calls
            if not self._is_open:
                self._open(key)
                return
            self._rounds += 1
            if self._mode == "always" or self._rounds < self._rounds_wanted:
                return
            if self._spent_s() > max(ALWAYS_AFFORDABLE_S, BUDGET * self._elapsed_s()):
                self._close()
                self._wait()

    def _open(self, key: int) -> None:
        if self._lib is None or self._paused:
            self._set_active(False)
            return
        if self._started_s is None:
            self._started_s = self._clock()
            self._compiled_s = 0.0
        self._leader = key
        self._rounds = 0
        self._due = False
        self._windows += 1
        self._is_open = True
        self._set_active(True)
        self._lib.op_meter_open()

    def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._is_open:
            self._lib.op_meter_close()
        self._is_open = False
        self._set_active(False)
        self._rounds_wanted = 0

    def pause(self, paused: bool) -> None:
        """See nothing for a while, unless it is to see everything."""
        if self._mode != "auto":
            return
        with self._lock:
            self._paused = paused
            if paused:
                self._close()
            else:
                self._want(ROUNDS)

    def _set_active(self, active: bool) -> None:
        self.active = active
        # In `auto`, the calls say when a window is over.
        natively = self._is_open and self._mode == "always"
        self._gate.want("ops", active, natively)

    def _wait(self) -> None:
        """Until the budget has room for another window, and longer each time."""
        room_s = self._spent_s() / BUDGET - self._elapsed_s()
        self._timer = threading.Timer(max(self._interval_s, room_s), self._want, (ROUNDS,))
        self._timer.daemon = True
        self._timer.start()
        self._interval_s = min(self._interval_s * INTERVAL_GROWTH, LONGEST_INTERVAL_S)

    def _elapsed_s(self) -> float:
        """Since the first window opened, without the time that compilations took."""
        if self._started_s is None:
            return 0.0
        return self._clock() - self._started_s - self._compiled_s

    def _work(self) -> native.Work:
        work = native.Work()
        self._lib.op_meter_work(ctypes.byref(work))
        return work

    def _spent_s(self) -> float:
        """What the windows have cost, by the estimate above."""
        now, before = self._work(), self._work_before
        samples = now.samples - before.samples
        sampled_s = 1e-9 * (now.sample_ns - before.sample_ns)
        slower = max(1.0, sampled_s / (samples * SAMPLE_S)) if samples else 1.0
        counted_s = (
            (now.events - before.events) * EVENT_S
            + (now.ops - before.ops) * OP_S
            + (now.nodes - before.nodes) * NODE_S
            + (now.silences - before.silences) * SILENCE_S
            + self._calls * CALL_S
        )
        return float(slower * counted_s + sampled_s)

    # --- Reading --------------------------------------------------------------------------------

    def read(self) -> Observed | None:
        """What the windows saw so far; None where no window was ever opened."""
        lib = self._lib
        if lib is None or not self._windows:
            return None
        with self._lock:
            rows = _read(lib.op_meter_rows, native.Row)
            gaps = _read(lib.op_meter_gaps, native.Sums)
            return Observed(
                entries=[
                    EagerOps(
                        row.name.decode(errors="replace"),
                        row.gap,
                        row.ordinal,
                        row.count,
                        row.ns,
                    )
                    for row in rows
                ],
                gaps=gaps,
                lines=self._lines.read(),
                whole=self._windows == 1 and self._is_open,
                lost=lib.op_meter_lost(),
                elapsed_s=self._elapsed_s(),
            )


def _read(function: Callable[[Any, int], int], kind: Any) -> list[Any]:
    size = function(None, 0)
    array = (kind * size)()
    return list(array[: min(function(array, size), size)])
