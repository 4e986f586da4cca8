"""What the main thread did before the op meter's native part was there."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from instrumented_backend.observe.ops.observed import Before


def _on_main() -> bool:
    return threading.current_thread() is threading.main_thread()


class Early:
    """Compilations and waits that begin before it comes; the rest until then is unseen.

    Everything is called with the meter's lock, but for `waiting`, which takes it.
    """

    def __init__(self) -> None:
        # Since when the main thread is in a compilation, or waits, that began so early.
        self._compiles_from_ns: int | None = None
        self._waits_from_ns: int | None = None
        self.begin()

    def begin(self) -> None:
        """The program begins now."""
        self.since_ns = time.monotonic_ns()
        self.compile_ns = self._waited_ns = 0
        self.before = Before()  # once the native part is there

    def native_came(self) -> int:
        """Since when all is known: now, or the beginning of a compilation under way.

        What the main thread runs from here on is apart from what it did before. A compilation
        under way is all of its gap; it is told of at its end.
        """
        now_ns = time.monotonic_ns()
        waits_ns = 0 if self._waits_from_ns is None else now_ns - self._waits_from_ns
        begin_ns = now_ns
        if self._compiles_from_ns is not None:
            begin_ns = max(self._compiles_from_ns, self.since_ns)
        waited_ns = self._waited_ns + waits_ns
        unseen_ns = begin_ns - self.since_ns - self.compile_ns - waited_ns
        self.before = Before(max(0, unseen_ns), self.compile_ns, waited_ns)
        return begin_ns

    def compiles(self, start_ns: int) -> None:
        if _on_main():
            self._compiles_from_ns = start_ns

    def compiled(self, start_ns: int, came: bool) -> bool:
        """The compilation is over; has the native part come meanwhile?

        True where that compilation is all of the main thread's gap so far.
        """
        if not _on_main():
            return False
        self._compiles_from_ns = None
        took_ns = time.monotonic_ns() - start_ns
        if came:
            self.before = replace(self.before, compile_ns=self.before.compile_ns + took_ns)
        else:
            self.compile_ns += took_ns
        return came

    @contextlib.contextmanager
    def waiting(self, lock: threading.RLock, is_there: Callable[[], bool]) -> Iterator[None]:
        """The program waits for the native part here."""
        start_ns = time.monotonic_ns()
        if not _on_main() or self._compiles_from_ns is not None:
            yield
            return
        with lock:
            if not is_there():
                self._waits_from_ns = start_ns
        try:
            yield
        finally:
            with lock:
                if not is_there():
                    self._waited_ns += time.monotonic_ns() - start_ns
                self._waits_from_ns = None
