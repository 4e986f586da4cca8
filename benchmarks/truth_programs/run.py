"""One run of a program: what it compiles, counts and times itself; and the runs of its oracle.

A program is a function of a `Run`. What its loop repeats is a *part*, with a name: all eager ops of
a program are in parts, and a part does the same each time, its first times apart. That makes an
oracle of counts: how often each part ran is counted in the run, and what it dispatches is counted
by torch.profiler in another process (`oracle.py`), for the first few times and then now and again.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor, nn

EAGER = "eager"  # a part of a stretch that lasts for so long, and what is spent in it
FIRST = 4  # times of a part that may differ from later ones: warm-up is over then
T = TypeVar("T")
# Called with a part's name and how often it has run before; to be entered while it runs.
Watch = Callable[[str, int], AbstractContextManager[Any]]


class Run:
    """With ``few``, an oracle's run: ``few`` turns of each loop, a hundredth of each stretch."""

    def __init__(
        self,
        device: str = "cpu",
        backend: Any = "instrumented",
        long: bool = False,
        few: int | None = None,
        watch: Watch = lambda name, number: nullcontext(),
    ) -> None:
        self.device = device
        self.long = long
        self._backend = backend
        self._few = few
        self._watch = watch
        self._called: set[int] = set()
        self.startup_s: float | None = None
        self.parts: dict[str, int] = defaultdict(int)
        self.part_s: dict[str, float] = defaultdict(float)  # without its first times
        # By kind: "first" calls of compiled functions, later "call"s, "backward", "data", "sleep",
        # "eager"; and by name, ops whose calls are all so long that the clock is no matter. Not
        # what other threads do.
        self.spent_s: dict[str, float] = defaultdict(float)

    # --- What is compiled -----------------------------------------------------------------------

    def compile(self, function: T, **options: Any) -> T:
        import torch

        compiled: T = torch.compile(function, backend=self._backend, **options)
        self._started()
        return compiled

    def compile_in_place(self, modules: Iterable[nn.Module]) -> None:
        """Each by its own `compile()`."""
        for module in modules:
            module.compile(backend=self._backend)
            self._started()

    def _started(self) -> None:
        if self.startup_s is None:
            self.startup_s = age_s()

    # --- What is counted and timed --------------------------------------------------------------

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Those of one name run one after the other, and so on one thread."""
        number = self.parts[name]
        self.parts[name] += 1
        with self._watch(name, number):
            start = time.perf_counter()
            try:
                yield
            finally:
                if number >= FIRST:
                    self.part_s[name] += time.perf_counter() - start

    @contextmanager
    def spent(self, kind: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.spent_s[kind] += time.perf_counter() - start

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """A compiled function, or a model with compiled blocks."""
        kind = "call" if id(function) in self._called else "first"
        self._called.add(id(function))
        with self.spent(kind):
            return function(*arguments)

    def backward(self, loss: Tensor) -> None:
        with self.spent("backward"):
            loss.backward()

    def sleep(self, seconds: float) -> None:
        with self.spent("sleep"):
            time.sleep(self.seconds(seconds))

    # --- How long -------------------------------------------------------------------------------

    def times(self, count: int) -> range:
        return range(count if self._few is None else min(count, self._few))

    def seconds(self, seconds: float) -> float:
        return seconds if self._few is None else seconds / 100

    def stretch(self, seconds: float) -> Iterator[None]:
        """So many turns as there is time for; in an oracle's run, a few."""
        if self._few is not None:
            yield from (None for _ in range(self._few))
            return
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            yield


def age_s() -> float:
    """Since this process started, by the kernel: to a hundredth of a second."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    started_s = int(fields[19]) / 100  # the 22nd of the line, in ticks since the machine's start
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started_s
