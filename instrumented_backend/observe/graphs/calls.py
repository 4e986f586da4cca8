"""What the program calls in a compiled function's place: each of its calls is counted here."""

import ctypes
import functools
import itertools
import math
import threading
from collections.abc import Callable
from typing import Any, Protocol

from instrumented_backend.observe.failures import Failures
from instrumented_backend.observe.native import build as native
from instrumented_backend.observe.native.gate import Gate
from instrumented_backend.observe.native.patience import Patience
from instrumented_backend.observe.observer import Observer
from instrumented_backend.records import notes
from instrumented_backend.torch_compat import aot, profilers


class Starting(Protocol):
    """What calls need to know of their graph."""

    started: bool  # has been called with the program's own inputs


class CallCounter:
    """Counts exactly from any thread, at the cost of one C call and no lock.

    In Python a call draws one of ``numbers``, which is atomic; native ones add to ``native``.
    Reading also draws a number, which is taken off.
    """

    def __init__(self) -> None:
        self.numbers = itertools.count()
        self.native = ctypes.c_int64()
        self._offset = 0
        self._lock = threading.Lock()

    @property
    def value(self) -> int:
        with self._lock:
            value = next(self.numbers) + self.native.value - self._offset
            self._offset += 1
            return value

    def reset(self) -> None:
        """Count from 0 again; calls under way on other threads count from now on."""
        with self._lock:
            self._offset = next(self.numbers) + self.native.value + 1


class GraphCalls(Observer):
    """Makes what the program calls: natively, or in Python where that cannot be built."""

    def __init__(self, gate: Gate, failures: Failures) -> None:
        self._gate = gate
        self._failures = failures
        self._native: Any = None
        self._loader: threading.Thread | None = None
        self._loaded = threading.Event()  # set, too, where it cannot be had
        self._patience = Patience()
        self._watches_profilers = False

    def start(self) -> None:
        """Get the native part, building it beside the program if need be; once a process.

        Any profiler sees regions, too.
        """
        if not self._watches_profilers:
            self._watches_profilers = True
            profilers.watch_running(self.profiled)
        if self._loader is None:
            self._loaded = threading.Event()
            self._patience = Patience()
            self._loader = threading.Thread(
                target=self._load_and_tell, name="instrumented_backend graph calls", daemon=True
            )
            self._loader.start()

    def _load_and_tell(self) -> None:
        try:
            self._load()
        finally:
            self._loaded.set()

    def _load(self) -> None:
        with self._failures.guard("graph calls"):
            try:
                self._native = native.load_graph_call(
                    remark=lambda text: self._failures.note(notes.NOT_KEPT, text)
                )
            except native.NativeError as error:
                self._failures.note(
                    notes.SLOWER, f"graph calls are counted in Python, which is slower: {error}"
                )

    def after_fork(self) -> None:
        """In the child: the thread that was loading the native part is not there."""
        self._gate.after_fork()
        if self._native is None:
            self._loader = None

    def profiled(self, running: bool) -> None:
        """A profiler has started or stopped: it gets to see regions."""
        self._gate.want("a profiler", running)

    def counted(
        self,
        compiled: Callable[..., Any],
        watched: Callable[..., Any],
        counter: CallCounter,
        graph: Starting,
        key: int,
    ) -> Callable[..., Any]:
        """``compiled`` with each call counted and nothing else done.

        While anyone watches calls, and before the graph's first, it is ``watched`` that is called:
        it has to count for itself. The op meter may watch natively: ``key`` is what it calls the
        graph's direction.
        """
        if self._loader is not None:
            # A graph keeps what it is given here, however long the program runs.
            self._patience.wait(self._loaded, math.inf)
        if self._native is None:
            call = _in_python(compiled, watched, counter, graph, self._gate)
        else:
            boxed, before = aot.boxed(compiled) or (None, None)
            call = self._native.GraphCall(
                *(compiled, watched, graph, key, self._gate.native, counter.native, boxed, before)
            )
        return functools.wraps(compiled)(call)


def _in_python(
    compiled: Callable[..., Any],
    watched: Callable[..., Any],
    counter: CallCounter,
    graph: Starting,
    gate: Gate,
) -> Callable[..., Any]:
    """What `_graph_call.cpp` does, but for the op meter, which ``watched`` has to call."""
    numbers = counter.numbers

    def call(*args: Any) -> Any:
        if graph.started and not gate.active:
            next(numbers)
            return compiled(*args)
        return watched(*args)

    return call
