"""Device time: how long kernels ran on the GPU, seen in short windows of torch.profiler.

The times are CUPTI's own, and each kernel is linked to the call that launched it. A window opens
when the program's loop has settled after a compilation, lasts some rounds, and comes back at
growing intervals. In training, a round lasts from the first forward call after a backward one to
the next such call, so that all of a step is in it however often a step calls a graph. Without
backward calls it lasts from one call of the graph that comes first to its next.

A profiler ends on the thread that it began on, which has to live as long: windows open on the main
thread alone. And only one can run in a process. The program's own always may: no window opens while
it runs, and one that is open ends when it starts.
"""

import copy
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from instrumented_backend.observe.failures import Failures
from instrumented_backend.observe.native.gate import Gate
from instrumented_backend.observe.native.keys import is_backward
from instrumented_backend.observe.observer import Observer
from instrumented_backend.observe.windows import WindowSchedule
from instrumented_backend.records import DeviceKernelRecord, DeviceRecord
from instrumented_backend.torch_compat import autograd, machine, profilers
from instrumented_backend.traces.kernel_totals import TraceTotals, totals_of
from instrumented_backend.traces.op_totals import RegionOps, together
from instrumented_backend.traces.region_ops import is_op, ops_in_regions
from instrumented_backend.traces.trace_file import read_trace

SETTLING_ROUNDS = 3  # first calls load kernels, tune them, record CUDA graphs
ROUNDS = 5
# Without backward calls, nothing tells how many rounds make a step: then a window lasts for more
# of them, unless these take long.
ROUNDS_OF_UNKNOWN_STEPS, ENOUGH_S = 40, 0.25
PATIENCE_CALLS = 100  # with gradients on, until the first backward call is not waited for any more
GIVING_WAY_S = 1.0  # how long a profiler that starts on another thread waits for a window's end
LONGEST_WINDOW_CALLS = 1_000  # all events of a window are in memory until it closes
MAX_KERNELS = 1_000
FIRST_INTERVAL_S, INTERVAL_GROWTH, LONGEST_INTERVAL_S = 10.0, 2.0, 1800.0
_GATE = "device time"


@dataclass
class _Seen:
    """What the windows saw; ``calls`` are the graph calls inside them, by `region_key`."""

    windows: int = 0
    gave_way: int = 0  # to a profiler of the program's own
    calls: Counter[int] = field(default_factory=Counter)
    totals: TraceTotals = field(default_factory=TraceTotals)
    ops: dict[int, RegionOps] = field(default_factory=dict)  # by `region_key`; never changed


class DeviceMeter(Observer):
    """Opens and closes the windows as graphs are called, on the thread that calls them."""

    def __init__(self, gate: Gate, failures: Failures, pause: Callable[[bool], None]) -> None:
        """``pause`` is told True before a window and False after it: a profiler slows ops."""
        self._gate = gate
        self._failures = failures
        self._pause = pause
        self._watching = False
        self._used = False
        self._schedule = WindowSchedule(FIRST_INTERVAL_S, INTERVAL_GROWTH, LONGEST_INTERVAL_S)
        self.after_fork()

    def after_fork(self) -> None:
        """In the child: a window of the parent's is the parent's."""
        self._lock = threading.RLock()
        self._timer: threading.Timer | None = None
        self._profile: Any = None
        self._ended = threading.Event()  # is no window open, and none being read
        self._ended.set()
        self._spoiled = False
        self._opened_s = 0.0
        self._in_window: list[tuple[int, int]] = []  # the thread and the key of each call
        self._own_start = False
        self._programs_own = False  # is one running, or about to
        self._forget()

    def _forget(self) -> None:
        self._seen = _Seen()
        self._schedule.restart()
        self._rest()

    def _rest(self) -> None:
        """Nothing is due."""
        self._due = False
        self._start_over()
        self._gate.want(_GATE, False)

    def _start_over(self) -> None:
        """The next call on the main thread begins the first round."""
        self._leader: int | None = None
        self._rounds = self._calls = 0
        self._trains = False  # have there been backward calls
        self._differentiated = False  # in this round

    def start(self) -> None:
        """Watch for profilers of the program's own; once a process."""
        if not self._watching:
            self._watching = True
            profilers.watch_starts(self._starting, self._stopped)

    def reset(self) -> None:
        """Forget what was seen; if graphs run on a GPU, a window is due."""
        self.close()
        with self._lock:
            self._forget()
            if self._used:
                self.want()

    def want(self) -> None:
        """A window is due once the calls have settled: something was compiled, or it is time.

        One that is open is lost: kernels are tuned in it, many times over, inside regions.
        """
        with self._lock:
            self._used = True
            if self._profile is None:
                self._due = True
                self._start_over()
                self._gate.want(_GATE, True)
            else:
                self._spoiled = True

    def enter(self, key: int) -> None:
        """A graph is about to be called on this thread."""
        if self._due or self._profile is not None:
            self._guarded(lambda: self._round(key))

    def _guarded(self, action: Callable[[], None]) -> None:
        """Where it fails, there will be no more windows."""
        done = False
        with self._failures.guard("device time"), self._lock:
            action()
            done = True
        if not done:
            self._profile = None
            self._ended.set()
            profilers.note_none_runs()  # ours may be half started
            self._rest()
            self._pause(False)

    def _round(self, key: int) -> None:
        self._calls += 1
        if is_backward(key):
            if not self._trains and self._profile is None:
                self._rounds = 0  # the calls until now were one at most
            self._trains = self._differentiated = True
        elif _in_main_thread():
            self._forward(key)
        if self._profile is not None:
            self._in_window.append((threading.get_native_id(), key))

    def _forward(self, key: int) -> None:
        """A forward call on the main thread; others recompute what was checkpointed."""
        if self._leader is None or self._calls > LONGEST_WINDOW_CALLS:
            # A graph that is not called again can't tell when the loop has come round.
            self._leader, self._rounds, self._differentiated = key, 0, False
            if self._profile is None:
                self._calls, self._trains = 0, False
        elif self._differentiated or (not self._trains and key == self._leader):
            self._rounds += 1
            self._differentiated = False
        if self._profile is not None:
            if self._spoiled or self._programs_own or self._is_enough():
                self._close()
        elif self._rounds >= SETTLING_ROUNDS and (
            self._trains or self._calls > PATIENCE_CALLS or not autograd.is_grad_enabled()
        ):
            self._open()

    def _is_enough(self) -> bool:
        if self._calls > LONGEST_WINDOW_CALLS:
            return True
        return self._rounds >= ROUNDS and (
            self._trains
            or self._rounds >= ROUNDS_OF_UNKNOWN_STEPS
            or time.monotonic() - self._opened_s >= ENOUGH_S
        )

    def _open(self) -> None:
        if self._programs_own or profilers.is_running():
            self._seen.gave_way += 1
            self._wait()
            return
        if machine.is_capturing():
            return  # a profiler would have to wait for the GPU, which a capture can't
        self._pause(True)
        self._ended.clear()
        machine.synchronize()  # kernels of earlier calls are no part of the window
        with self._own():
            self._profile = profilers.device_profile()
            self._profile.__enter__()
        self._due = self._spoiled = self._differentiated = False
        self._rounds = self._calls = 0
        self._opened_s = time.monotonic()
        self._in_window = []

    def close(self) -> None:
        """End the window that is open, if one is and this is its thread, and read it."""
        self._guarded(self._close)

    def _close(self) -> None:
        profile = self._profile
        if profile is None or not _in_main_thread() or machine.is_capturing():
            return  # it waits for the GPU, too; a later call ends it
        self._profile = None
        self._wait()
        with self._own():
            profile.__exit__(None, None, None)
        self._ended.set()
        self._pause(False)
        if self._spoiled:
            self.want()  # a new one, at once
            return
        with tempfile.TemporaryDirectory(prefix="instrumented_backend-") as folder:
            path = str(Path(folder) / "window.json")
            profile.export_chrome_trace(path)
            trace = read_trace(path, wanted=is_op)
        self._seen.windows += 1
        self._seen.calls.update(key for _, key in self._in_window)
        self._seen.totals.add(totals_of(trace))
        # Others may be reading what there was.
        self._seen.ops = together(self._seen.ops, ops_in_regions(trace, self._in_window))

    @contextmanager
    def _own(self) -> Iterator[None]:
        """A profiler that starts or stops meanwhile is not the program's."""
        self._own_start = True
        try:
            yield
        finally:
            self._own_start = False

    def _wait(self) -> None:
        self._rest()
        if self._timer is not None:
            self._timer.cancel()  # of a window that a compilation was faster to ask for
        self._timer = threading.Timer(self._schedule.next().wait_s, self._again)
        self._timer.daemon = True
        self._timer.start()

    def _again(self) -> None:
        """It is time; unless something was compiled meanwhile, and a window is due or open."""
        with self._lock:
            if self._profile is None and not self._due:
                self.want()

    def stop(self) -> None:
        """For good, with what the window that is open has seen.

        On the thread that dies of SIGTERM nothing may be waited for: the program can be stuck.
        """
        if _in_main_thread():
            self.close()
        if self._timer is not None:
            self._timer.cancel()
        self._rest()

    @property
    def ops(self) -> Mapping[int, RegionOps]:
        """What the ops inside regions launched in the windows so far, by `region_key`."""
        return self._seen.ops

    def record(self, calls: Mapping[int, int]) -> DeviceRecord:
        """What the windows saw so far; ``calls`` has the exact number of each region key."""
        seen = copy.deepcopy(self._seen) if _in_main_thread() else self._seen
        kernel_ns = sum(total.time_ns for total in seen.totals.kernels.values())
        captured_ns = sum(total.captured_ns for total in seen.totals.kernels.values())
        longest = sorted(seen.totals.kernels.items(), key=lambda item: -item[1].time_ns)
        all_calls = sum(calls.values())
        return DeviceRecord(
            status="sampled" if kernel_ns else "unknown",
            windows=seen.windows,
            observed_pct=100 * (seen.calls.total() / all_calls) if all_calls else None,
            window_us=seen.totals.window_ns / 1e3,
            busy_us=seen.totals.busy_ns / 1e3,
            kernel_us=kernel_ns / 1e3,
            captured_us=captured_ns / 1e3,
            pct_captured=100 * (captured_ns / kernel_ns) if kernel_ns else None,
            kernels=[
                DeviceKernelRecord(
                    kernel=name,
                    device=device,
                    count=total.count,
                    time_us=total.time_ns / 1e3,
                    share_pct=100 * (total.time_ns / kernel_ns),
                    captured_count=total.captured_count,
                    captured_us=total.captured_ns / 1e3,
                )
                for (name, device), total in longest[:MAX_KERNELS]
                if total.time_ns
            ],
            note=self._note(seen, kernel_ns),
        )

    def _note(self, seen: _Seen, kernel_ns: int) -> str | None:
        if kernel_ns:
            share = 100 * (seen.totals.unlinked_ns / kernel_ns)
            return f"{share:.1f} % of it has no known launch: not captured" if share else None
        if not self._used:
            return "no graph was compiled for CUDA"
        if seen.gave_way:
            return "the program's own torch.profiler was running"
        if seen.windows:
            return "no kernel ran in the windows"
        return f"no window: fewer than {SETTLING_ROUNDS + 1} rounds of calls on the main thread"

    # --- The program's own profilers ------------------------------------------------------------

    def _starting(self) -> None:
        if self._own_start:
            return
        self._programs_own = True
        if self._profile is not None:
            self._seen.gave_way += 1
            if _in_main_thread():
                self.close()
            else:
                self._ended.wait(GIVING_WAY_S)  # by the main thread's next call

    def _stopped(self) -> None:
        if not self._own_start:
            self._programs_own = False


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
