"""A GPU in the host's time, behind the functions that the op meter's native part calls."""

import ctypes
import time
from pathlib import Path
from typing import Any

from instrumented_backend.observe.native import build as native
from instrumented_backend.observe.native import structs
from instrumented_backend.observe.native.compiler import compile_shared

KEY, OTHER = 1, 2  # of two regions that are on it
MANY_CALLS = 256  # of a thread in one window, after which one in 32 is timed
MANY_OPS = 128  # that are timed, one in 16, after which one in 1024 is
_SOURCE = Path(__file__).with_name("fake_gpu.cpp")


def build(folder: Path) -> Any:
    """The library; ``folder`` is empty."""
    library = folder / "fake_gpu.so"
    compile_shared(_SOURCE, library, [], [], native.LIMIT_S)
    lib = ctypes.CDLL(str(library))
    lib.fake_work.argtypes = [ctypes.c_int64, ctypes.c_int64]
    lib.fake_set.argtypes = [ctypes.c_int64, ctypes.c_int, ctypes.c_int, ctypes.c_int64]
    for name in ("busy_ns", "calls"):
        getattr(lib, f"fake_{name}").restype = ctypes.c_int64
    return lib


class FakeGpu:
    """``work(ms)`` gives the current stream so much to do."""

    def __init__(self, lib: Any) -> None:
        self._lib = lib
        lib.fake_reset()
        self._stream = 1
        self.functions = structs.GpuFunctions(
            **{
                name: ctypes.cast(getattr(lib, f"fake_{name}"), ctypes.c_void_p).value
                for name in structs.GpuFunctions.NAMES
            }
        )

    def be(
        self, stream: int = 1, capturing: bool = False, error: int = 0, held_up_ms: float = 0
    ) -> None:
        """``error`` is of the next events that are recorded, each after ``held_up_ms``."""
        self._stream = stream
        self._lib.fake_set(stream, capturing, error, int(1e6 * held_up_ms))

    def work(self, ms: float) -> None:
        self._lib.fake_work(int(1e6 * ms), self._stream)

    def hold(self) -> None:
        """It does nothing of what it is given from now on until :meth:`synchronize`."""
        self._lib.fake_hold()

    def synchronize(self) -> None:
        """Wait until all streams have done what they were given."""
        self._lib.fake_release()
        while (left_ns := self._lib.fake_busy_ns()) > 0:
            time.sleep(1e-9 * left_ns)

    def calls(self, name: str) -> int:
        """Of that function, so far."""
        return int(self._lib.fake_calls(name.encode()))

    @property
    def pending_error(self) -> int:
        """What the program would be told next, on this thread; 0: nothing."""
        return int(self._lib.fake_pending())

    @property
    def current_device(self) -> int:
        """Of this thread."""
        return int(self._lib.fake_current())

    @property
    def capture_mode(self) -> int:
        return int(self._lib.fake_capture_mode())
