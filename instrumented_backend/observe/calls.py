"""What the program calls in a compiled function's place: each of its calls is counted here."""

import functools
import itertools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from instrumented_backend import torch_compat

if TYPE_CHECKING:
    from instrumented_backend.observe.graphs import ObservedGraph

GENERATED_FILE = "<instrumented call>"
# Written out for each number of inputs: to gather them in `*args` and to spread them again takes
# longer than all the rest.
_SOURCE = """
def make(compiled, watched, calls, graph, gate, profiler):
    def call({inputs}):
        if graph.started and not gate.active and not profiler._is_profiler_enabled:
            next(calls)
            return compiled({inputs})
        return watched({inputs})
    return call
"""


class CallCounter:
    """Counts exactly from any thread, at the cost of one C call and no lock.

    ``next`` on ``numbers`` is atomic. Reading also draws a number, which is taken off.
    """

    def __init__(self) -> None:
        self.numbers = itertools.count()
        self._offset = 0
        self._lock = threading.Lock()

    @property
    def value(self) -> int:
        with self._lock:
            value = next(self.numbers) - self._offset
            self._offset += 1
            return value

    def reset(self) -> None:
        """Count from 0 again; calls under way on other threads count from now on."""
        with self._lock:
            self._offset = next(self.numbers) + 1


def counted(
    compiled: Callable[..., Any],
    watched: Callable[..., Any],
    counter: CallCounter,
    inputs: int,
    graph: "ObservedGraph",
) -> Callable[..., Any]:
    """``compiled``, which takes ``inputs`` of them; each call counted, and nothing else.

    While anyone watches calls, and before the graph's first, it is ``watched`` that is called: it
    has to count for itself.
    """
    profiler = torch_compat.profiler_state()
    call = _maker(inputs)(compiled, watched, counter.numbers, graph, graph.gate, profiler)
    return functools.wraps(compiled)(call)


@functools.lru_cache(maxsize=64)
def _maker(inputs: int) -> Callable[..., Callable[..., Any]]:
    names = ", ".join(f"input_{number}" for number in range(inputs))
    namespace: dict[str, Any] = {}
    exec(compile(_SOURCE.format(inputs=names), GENERATED_FILE, "exec"), namespace)
    make: Callable[..., Callable[..., Any]] = namespace["make"]
    return make
