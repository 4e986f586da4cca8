"""Whether graph calls are watched just now, for Python and for native code to test on each call."""

import ctypes
from typing import Any

from instrumented_backend.observe.native import GateState


class Gate:
    """``active`` while any of the meters wants to see the calls; ``native`` says the same."""

    def __init__(self) -> None:
        self.active = False
        self.native = GateState()
        self._wanting: dict[str, bool] = {}  # a meter → does its native part do

    def want(self, meter: str, wanted: bool, natively: bool = False) -> None:
        """``natively``: the functions given to `regions` are all that ``meter`` needs."""
        if wanted:
            self._wanting[meter] = natively
        else:
            self._wanting.pop(meter, None)
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
