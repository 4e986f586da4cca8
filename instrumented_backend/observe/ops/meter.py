"""The op meter: where a program's time goes, and which ops it runs outside compiled regions.

The native part (`_op_meter.cpp`) sees each call of a graph and what else marks a program's course,
for a fraction of a microsecond each. Which ops run in between it sees in windows only: its callback
costs a few percent while it is there and nothing when it is gone. ``INSTRUMENTED_OPS=auto`` has a
window at the start and after compilations, until the program's loop has come round, and then
windows that chance places all over the run (`windows.py`), for a share of the time that costs no
more than `BUDGET`.
"""

import contextlib
import gc
import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from instrumented_backend.observe.failures import Failures
from instrumented_backend.observe.native import build as native
from instrumented_backend.observe.native import structs
from instrumented_backend.observe.native.gate import Gate
from instrumented_backend.observe.native.patience import Patience
from instrumented_backend.observe.observer import Observer
from instrumented_backend.observe.ops import work
from instrumented_backend.observe.ops.called import count_calls
from instrumented_backend.observe.ops.captured import GraphOps
from instrumented_backend.observe.ops.early import Early
from instrumented_backend.observe.ops.gpu_seen import time_calls
from instrumented_backend.observe.ops.lines import Lines
from instrumented_backend.observe.ops.observed import Copied, Observed
from instrumented_backend.observe.ops.op_counter import OneThread, OpCounter
from instrumented_backend.observe.windows import WindowSchedule
from instrumented_backend.records import notes
from instrumented_backend.torch_compat import dynamo

# Of the time that the program runs: of windows after compilations, and of the others.
BUDGET = 0.003
ALWAYS_AFFORDABLE_S = 0.02  # nothing beside importing torch: short runs are seen whole
FIRST_INTERVAL_S, INTERVAL_GROWTH, LONGEST_INTERVAL_S, SHORTEST_WINDOW_S = 0.1, 1.03, 5.0, 0.002
# A window waits for gaps to end that began in it; longer ones are seen in slices.
LONGEST_GAP_S = 0.135
# Of gaps under way when a window opens, what it sees from the beginning; as `_op_windows.h` has it.
NO_GAP, ALL_GAPS, MAIN_GAP = range(3)
POLL_S, LONGEST_POLL_S, NEVER_S = 0.02, 0.5, 1e9
LOAD_PATIENCE_S, EXIT_PATIENCE_S = 0.2, 0.5  # of the program at its start, and at its end
WORTH_NAMING_S, CALLS_UNTIL_COUNTED = 0.5, 2_000


class OpMeter(Observer):
    """Opens and closes windows, and reads what they saw.

    Graph calls go through `enter` and `leave`, or natively past them.
    """

    def __init__(
        self,
        mode: str,
        failures: Failures,
        print_missing: bool,
        gate: Gate,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.active = mode != "off"
        self._problem: str | None = "INSTRUMENTED_OPS=off" if mode == "off" else None
        self._gate = gate
        self._mode = mode
        self._failures = failures
        self._lock = threading.RLock()
        self._lib: Any = None
        self._loader: threading.Thread | None = None
        self._loaded = threading.Event()  # set, too, where it cannot be had
        self._patience = Patience()
        self._counter = OpCounter()
        self._lines = Lines(failures, print_missing)
        self._sample_each = print_missing
        self._sampler = structs.Sampler(self._lines.sample)
        self._patched = False
        self._schedule = WindowSchedule(
            *(FIRST_INTERVAL_S, INTERVAL_GROWTH, LONGEST_INTERVAL_S, BUDGET, SHORTEST_WINDOW_S),
            clock=clock,
        )
        self._start_over()

    def _start_over(self) -> None:
        """What a process begins with, and a forked child again."""
        self._compiling = 0  # threads, and compilations inside compilations
        self._unmarked = 0  # those on threads that began before the native part was there
        self._depth = threading.local()  # of these, on this thread
        self._paused = self._stopped = False
        self._collection_ns: int | None = None  # when the one under way began
        self._early = Early()
        self._is_asleep = False  # until it compiles, a forked child is nobody's to look at
        self._planner: threading.Thread | None = None
        self._on_gpus: dict[int, int] = {}  # graph → CUDA device
        self._gpu_problem: str | None = None
        self._forget()

    def _forget(self) -> None:
        self._early.begin()
        self._windows = 0
        # Has something been run before the native part was there.
        self._is_late = self._loader is not None and self._lib is None
        self._is_whole = False  # has a window seen all from the beginning on
        self._is_warm_up = False  # is a window open that stays until the loop has come round
        self._warm_up_s = 0.0  # what such windows have cost
        self._spent_before_s = 0.0  # what all had cost when the last of them opened
        self._most_s = 0.0  # what all may have cost when it closes
        self._work_before = structs.Work()
        self._schedule.restart()

    # --- Start and end --------------------------------------------------------------------------

    def start(self) -> None:
        """Get the native part, building it beside the program if need be; once a process."""
        if self._mode == "off" or self._loader is not None:
            return
        self._gate.want("ops", True)
        if not self._patched:
            self._patched = True
            dynamo.patch_compile_callbacks(self.compiling)
        self._loaded = threading.Event()
        loader = threading.Thread(
            target=self._load_and_tell, name="instrumented_backend op meter", daemon=True
        )
        self._patience = Patience()
        loader.start()
        self._loader = loader
        # From a cache it is loaded at once, and what the program does next is seen.
        self._wait_for_native(math.inf if self._mode == "always" else LOAD_PATIENCE_S)
        with self._lock:
            self._is_late = self._lib is None

    def _load_and_tell(self) -> None:
        try:
            self._load()
        finally:
            self._loaded.set()

    def _load(self) -> None:
        with self._failures.guard("ops"):
            try:
                lib = native.load(remark=lambda text: self._failures.note(notes.NOT_KEPT, text))
            except native.NativeError as error:
                self._problem = f"no op meter: {error}"
                self._failures.note(notes.OPS_UNKNOWN, self._problem)
                self.active = False
                self._gate.want("ops", False)
                return
            self._lines.tell(lib)
            lib.op_meter_sample(self._sampler, self._sample_each)
            self._gate.regions(lib.op_meter_enter, lib.op_meter_leave)
            if self._mode == "auto":  # the other sees all ops themselves
                count_calls(lib)
            with self._lock:
                self._lib = lib
                self._work_before = work.done(self._lib)
                lib.op_meter_begin(self._early.native_came(), self._early.compile_ns)
                for graph, device in self._on_gpus.items():
                    self._gpu_problem = time_calls(self._lib, graph, device)
                if not self._compiling:
                    self._warm_up(from_here=True)
            self._gate.want("ops", True, natively=True)
            gc.callbacks.append(self._collecting)

    def _collecting(self, phase: str, info: dict[str, int]) -> None:
        """A garbage collection of the whole heap takes long, and which op it meets is chance."""
        if info["generation"] != 2:
            return
        lib, start_ns = self._lib, self._collection_ns
        self._collection_ns = time.monotonic_ns() if phase == "start" else None
        if lib is not None and phase == "stop" and start_ns is not None:
            lib.op_meter_collected(time.monotonic_ns() - start_ns)

    def begin(self) -> None:
        """The program begins here: what was seen before is its start-up."""
        with self._lock:
            self._early.begin()
            if self._lib is not None and self._windows == 1:
                self._lib.op_meter_begin(self._early.since_ns, 0)
                self._is_whole = self._is_warm_up  # however late it was

    def program_ends(self) -> None:
        """What handlers at exit do from here on, torch's own among them, is another gap."""
        with self._lock:
            if self._lib is not None:
                self._lib.op_meter_exit()

    def stop(self) -> None:
        """For good: no callback of ours may run while the interpreter goes down."""
        with contextlib.suppress(ValueError):  # the program may have emptied the list
            gc.callbacks.remove(self._collecting)
        with self._lock:
            self._stopped = True
            lib, self._lib = self._lib, None
            if lib is not None:
                lib.op_meter_wake()
                lib.op_meter_close()
                lib.op_meter_uncount_calls()
                lib.op_meter_sample(structs.Sampler(), False)

    def reset(self) -> None:
        """Forget what was seen, and begin with a window again."""
        with self._lock:
            self._forget()
            self._lines.clear()  # first: what the native part knows has their numbers
            if self._lib is not None:
                self._lib.op_meter_close()
                self._lib.op_meter_clear()
                self._work_before = work.done(self._lib)
            self._warm_up()

    def after_fork(self) -> None:
        """In the child, where no other thread exists, and which has compiled nothing itself."""
        self._lock = threading.RLock()
        self._start_over()
        self._is_asleep = True
        self._counter.after_fork()
        self._lines.after_fork()  # first, as in `reset`
        if self._lib is not None:
            self._lib.op_meter_after_fork()
            self._lib.op_meter_begin(self._early.since_ns, 0)
            self._work_before = work.done(self._lib)
        elif self._mode != "off":
            self._loader = None

    # --- Compilations ---------------------------------------------------------------------------

    @contextlib.contextmanager
    def compiling(self) -> Iterator[None]:
        """What this thread runs meanwhile is the compiler's, not the program's."""
        start_ns = time.monotonic_ns()
        with self._lock:
            self._compiling += 1
            depth = getattr(self._depth, "value", 0)
            lib = None if depth else self._lib  # it may be a part of one that began before
            if lib is None and not depth:
                self._unmarked += 1
                self._early.compiles(start_ns)
        if lib is not None:
            lib.op_meter_quiet(1, True, 0)
        else:
            self._depth.value = depth + 1
        try:
            yield
        finally:
            self._compiled(lib, start_ns)

    def _compiled(self, lib: Any, start_ns: int) -> None:
        if lib is not None:
            lib.op_meter_quiet(-1, True, 0)
        else:
            self._depth.value -= 1
        with self._lock:
            self._compiling -= 1
            seamless = False  # is the main thread's gap this compilation so far
            if lib is None and not self._depth.value:
                self._unmarked -= 1
                start_ns = max(start_ns, self._early.since_ns)
                if self._lib is not None:  # it came meanwhile
                    self._lib.op_meter_quiet(1, True, start_ns)
                    self._lib.op_meter_quiet(-1, True, 0)
                seamless = self._early.compiled(start_ns, came=self._lib is not None)
            self._is_asleep = False
            if not self._compiling:
                self._warm_up(seamless, BUDGET * 1e-9 * (time.monotonic_ns() - start_ns))

    def add_graph(self, gm: Any) -> GraphOps | None:
        """Take note of the ops in a graph."""
        if self._mode == "off":
            return None
        ops = self._counter.add(gm)
        if self._counter.waiting > CALLS_UNTIL_COUNTED:
            threading.Thread(target=self._count_in_background, daemon=True).start()
        return ops

    def add_gpu(self, graph: int, device: int) -> None:
        """That graph runs on this CUDA device: its calls are timed there, in the windows."""
        with self._lock:
            self._on_gpus[graph] = device
            if self._lib is not None:
                self._gpu_problem = time_calls(self._lib, graph, device)

    def _count_in_background(self) -> None:
        with self._failures.guard("captured ops"):
            self.count_graphs()

    def count_graphs(
        self, patience_s: float = math.inf, pause: Callable[[], None] = lambda: None
    ) -> None:
        """Find the forward ops of all graphs so far; ``patience_s`` for what is being built."""
        self._wait_for_native(patience_s)
        lib = self._lib
        if lib is None:
            return
        lib.op_meter_quiet(1, False, 0)
        try:
            self._counter.count_all(OneThread(lib), pause)
        finally:
            lib.op_meter_quiet(-1, False, 0)

    def _wait_for_native(self, patience_s: float) -> None:
        if self._loader is not None and self._lib is None:
            self._patience.wait(self._loaded, patience_s)

    @property
    def unavailable(self) -> str | None:
        """Why there is no op meter, or no number of captured ops; None where both are there."""
        if self._loader is not None and not self._loaded.is_set():
            return "no op meter: it was still being built"
        return self._problem or self._counter.problem

    # --- Graph calls ----------------------------------------------------------------------------

    def enter(self, key: int) -> None:
        """A region begins on this thread; `leave` is to be called in any case."""
        if self._lib is None and not self._stopped:
            # The first call waits, or what the program does until then would be unknown.
            with self._failures.guard("op meter"):
                self._wait_in_call()
        lib = self._lib
        if lib is not None:
            lib.op_meter_enter(key)

    def _wait_in_call(self) -> None:
        start_s = time.monotonic()
        with self._early.waiting(self._lock, lambda: self._lib is not None):
            self._wait_for_native(math.inf)
        waited_s = time.monotonic() - start_s
        if waited_s > WORTH_NAMING_S:
            found = "it is not there yet" if self._lib is None else "the next process finds it"
            text = f"the first call of a graph waited {waited_s:.1f} s for the op meter to be built"
            self._failures.note(notes.SLOWER, f"{text}; {found}")

    def leave(self, key: int) -> None:
        lib = self._lib
        if lib is not None:
            lib.op_meter_leave(key)

    # --- Windows --------------------------------------------------------------------------------

    def pause(self, paused: bool) -> None:
        """See nothing for a while, unless it is to see everything."""
        if self._mode != "auto":
            return
        with self._lock:
            self._paused = paused
            if paused and self._lib is not None:
                self._is_whole = self._is_warm_up = False
                self._lib.op_meter_close()
                self._lib.op_meter_wake()  # or the one that is planned would open
            elif not paused:
                self._warm_up()

    def _warm_up(self, from_here: bool = False, own_s: float = 0.0) -> None:
        """A window, from here until the program's loop has come round. With the lock.

        ``from_here``: the main thread's gap under way has run nothing so far. Where too much was
        spent before, it may cost ``own_s``, the share of the compilation that has ended.
        """
        lib = self._lib
        if lib is None or self._paused or self._stopped or self._is_asleep:
            return
        spent_s, most_s = work.spent_s(self._work_done()), 2 * self._affordable_s()
        if self._windows and spent_s > most_s and not own_s:
            return
        self._most_s = max(most_s, spent_s + own_s)
        is_first = not (self._windows or self._is_late)
        self._spent_before_s = self._spent_before_s if self._is_warm_up else spent_s
        lib.op_meter_open(ALL_GAPS if is_first else MAIN_GAP if from_here else NO_GAP)
        self._is_whole = self._is_whole or is_first
        self._windows += 1
        self._is_warm_up = True
        if self._mode == "auto":
            if self._planner is None:
                self._planner = threading.Thread(
                    target=self._plan, name="instrumented_backend windows", daemon=True
                )
                self._planner.start()
            lib.op_meter_wake()

    def _plan(self) -> None:
        """Ends and opens windows, on a thread of its own."""
        with self._failures.guard("op meter"):
            while (lib := self._lib) is not None:
                awake = lib.op_meter_awake()
                if self._is_warm_up:
                    self._end_warm_up(lib, awake)
                elif self._paused or self._compiling:
                    lib.op_meter_wait(int(1e9 * POLL_S), awake)
                else:
                    with self._lock:
                        if self._lib is None:  # `stop` found no wait to end
                            return
                        done = self._work_done()
                    spent_s = work.spent_s(done)
                    by_chance_s = spent_s - self._warm_up_s - 1e-9 * done.unlike_ns
                    plan = self._schedule.next(by_chance_s, spent_s, 1e-9 * done.open_ns)
                    times_s = plan.wait_s, plan.length_s, plan.last_stood_for_s, LONGEST_GAP_S
                    looks_s = work.looks_s(self._schedule.elapsed_s())
                    lib.op_meter_window(*(int(1e9 * s) for s in (*times_s, *looks_s)), awake)

    def _end_warm_up(self, lib: Any, awake: int) -> None:
        window = None
        with self._lock:
            limits_s = self._affordable_s(), self._most_s
            if self._lib is not None and work.is_enough(self._work_done(), *limits_s):
                self._is_whole = self._is_warm_up = False
                window, before_s = lib.op_meter_end(), self._spent_before_s
        if window is None:
            # A program that mostly waits may never spend enough: it is looked at more seldom.
            wait_s = min(POLL_S * (1 + self._schedule.elapsed_s()), LONGEST_POLL_S)
            lib.op_meter_wait(int(1e9 * wait_s), awake)
        else:
            lib.op_meter_finish(window, int(1e9 * LONGEST_GAP_S), awake)
            self._schedule.go_on()
            with self._lock:
                if self._lib is not None and not self._is_warm_up:
                    spent_s = work.spent_s(self._work_done())
                    self._warm_up_s += max(0.0, spent_s - before_s)

    def _work_done(self) -> structs.Work:
        """Since the last reset."""
        return work.since(self._lib, self._work_before)

    def _affordable_s(self) -> float:
        return max(ALWAYS_AFFORDABLE_S, self._schedule.affordable_s())

    # --- Reading --------------------------------------------------------------------------------

    def read(
        self, listed: bool = True, longest_gap_s: float = 0.0, with_gaps: bool = True
    ) -> Observed | None:
        """What was seen so far; None where the native part was never there. See `Copied.of`."""
        lib = self._lib
        if lib is None:
            return None
        with self._lock:
            elapsed_ns, whole = time.monotonic_ns() - self._early.since_ns, self._is_whole
            if self._unmarked:  # the gap under way is a compilation that is told of at its end
                longest_gap_s = NEVER_S
            copied, before = Copied.of(lib, listed, longest_gap_s, with_gaps), self._early.before
            copied.gpu.problem = self._gpu_problem
        return copied.observed(self._lines.read() if listed else [], whole, elapsed_ns, before)

    def change(self) -> tuple[int, ...] | None:
        """Another one if anything was seen since the last time; None: there is nothing to see."""
        with self._lock:
            done = None if self._lib is None else work.done(self._lib)
        return None if done is None else (done.marks, done.ops, self._compiling)
