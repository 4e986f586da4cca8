"""Whether graph calls are watched just now, for Python and for native code to test on each call."""

import ctypes
import threading
from typing import Any

from instrumented_backend.observe.native.structs import GateState


class Gate:
    """``active`` while a meter or a profiler wants to see the calls; ``native`` says the same."""

    def __init__(self) -> None:
        self.active = False
        self.native = GateState()
        self._wanting: dict[str, bool] = {}  # who → does the native part do
        self.after_fork()

    def after_fork(self) -> None:
        """In the child: a thread of the parent's may have held the lock."""
        self._lock = threading.RLock()  # a signal's handler may end a window while one is ended

    def want(self, who: str, wanted: bool, natively: bool = False) -> None:
        """``natively``: the functions given to `regions` are all that it needs."""
        with self._lock:
            if wanted:
                self._wanting[who] = natively
            else:
                self._wanting.pop(who, None)
            self.active = bool(self._wanting)
            if not self.active:
                self.native.state = GateState.UNWATCHED
            elif all(self._wanting.values()):
                self.native.state = GateState.METERED
            else:
                self.native.state = GateState.WATCHED

    def regions(self, enter: Any, leave: Any) -> None:
        """ctypes functions: ``enter()`` as a region begins, ``leave(key)`` as it ends."""
        self.native.enter = ctypes.cast(enter, ctypes.c_void_p)
        self.native.leave = ctypes.cast(leave, ctypes.c_void_p)
