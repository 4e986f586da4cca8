"""The time of C++ kernels in the run itself: native timers in their places in the loaded modules.

Nothing is recompiled for it: a generated module looks its kernels up by name at each call.
"""

from collections.abc import Iterable
from types import ModuleType
from typing import Any

from instrumented_backend.kernels.complete import add_time
from instrumented_backend.kernels.facts import TimeFacts
from instrumented_backend.observe.failures import Failures
from instrumented_backend.observe.native import build as native
from instrumented_backend.records import KernelRecord, Note, notes

_NO_PEAK = Note(
    notes.PEAK_UNKNOWN,
    "share of peak unknown: a CPU has no datasheet figure here; the command bench measures",
)


class ModuleTimes:
    """The timers of one graph's code, by kernel."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._start: tuple[int, int] = library.now()
        self._timers: dict[str, list[Any]] = {}

    def install(self, module: ModuleType, kernels: Iterable[str]) -> None:
        """Put timers in the kernels' places; one that is there already belongs to another graph."""
        for name in kernels:
            kernel = vars(module).get(name)
            if callable(kernel) and not isinstance(kernel, self._library.Timer):
                timer = self._library.Timer(kernel)
                vars(module)[name] = timer
                self._timers.setdefault(name, []).append(timer)

    def reset(self) -> None:
        for timers in self._timers.values():
            for timer in timers:
                timer.calls = timer.timed = timer.ticks = 0

    def describe(self, record: KernelRecord) -> None:
        """Add what the run has shown so far."""
        timers = self._timers.get(record.kernel_name, [])
        calls = sum(timer.calls for timer in timers)
        timed = sum(timer.timed for timer in timers)
        if not timed:
            return
        said = []
        if timed < calls:
            text = f"time: of {timed} calls, drawn at random from {calls}"
            said.append(Note(notes.TIME, text))
        said.append(_NO_PEAK)
        mean_us = self._us(sum(timer.ticks for timer in timers)) / timed
        add_time(record, TimeFacts(mean_us, calls, said))

    def _us(self, ticks: int) -> float:
        """By the counter's rate since the start, in which it has run at a constant one."""
        now = self._library.now()
        ns = ticks * (now[1] - self._start[1]) / (now[0] - self._start[0])
        return float(ns) / 1e3


class KernelTimer:
    """Times the C++ kernels of each module that is loaded from now on."""

    def __init__(self, failures: Failures) -> None:
        self._failures = failures
        self._library: Any = None
        self._problem: native.NativeError | None = None

    def install(
        self, modules: Iterable[ModuleType], path: str, kernels: Iterable[str]
    ) -> ModuleTimes | None:
        """In those of the ``modules`` that are from ``path``; None where it has no such kernel.

        Raises `NativeError`, once, where the timers can't be built.
        """
        names = list(kernels)
        if not names or self._problem is not None:
            return None
        if self._library is None:
            try:
                self._library = native.load_kernel_timer(
                    remark=lambda text: self._failures.note(notes.NOT_KEPT, text)
                )
            except native.NativeError as error:
                self._problem = error
                raise
        times = ModuleTimes(self._library)
        for module in modules:
            if getattr(module, "__file__", None) == path:
                times.install(module, names)
        return times
