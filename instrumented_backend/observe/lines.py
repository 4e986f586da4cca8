"""The user's lines on which eager ops were met, by sampling."""

import sys
import threading
from types import CodeType, FrameType
from typing import NamedTuple

from instrumented_backend import torch_compat
from instrumented_backend.observe.failures import Failures
from instrumented_backend.observe.user_code import is_internal

MAX_LINES = 10_000
MAX_DEPTH = 200


class Line(NamedTuple):
    """A place in the user's program; all None where no user's frame was there."""

    file: str | None
    line: int | None
    function: str | None
    first_line: int | None = None  # of the function


UNKNOWN = Line(None, None, None)
Place = tuple[str, int, int]  # op name, gap, ordinal in the gap


class Lines:
    """For each op of each gap: the lines that samples were taken on, with their weights.

    Frames of torch, of the standard library and of this package are skipped. Ops of a backward
    run on threads of the autograd engine's own: theirs is the line that called ``backward``.
    """

    def __init__(self, failures: Failures, print_missing: bool) -> None:
        self._failures = failures
        self._print = print_missing
        self._printed: set[tuple[str, Line]] = set()
        self._lock = threading.Lock()
        self._skipped: dict[CodeType, bool] = {}
        self.clear()

    def clear(self) -> None:
        with self._lock:
            self._weights: dict[Place, dict[Line, list[float]]] = {}
            self._count = 0

    def after_fork(self) -> None:
        self._lock = threading.Lock()
        self.clear()

    def read(self) -> dict[Place, dict[Line, list[float]]]:
        """Place → line → [weight, nanoseconds times weight]."""
        with self._lock:
            return {
                key: {line: list(sums) for line, sums in lines.items()}
                for key, lines in self._weights.items()
            }

    def sample(self, name: bytes, gap: int, ordinal: int, time_ns: int, weight: float) -> None:
        """Called by the native part, on the thread of the op, right after it."""
        with self._failures.guard("lines of eager ops"):
            op = name.decode(errors="replace")
            line = self._line(sys._getframe(1) if sys._getframe().f_back else None)
            with self._lock:
                lines = self._weights.setdefault((op, gap, ordinal), {})
                sums = lines.get(line)
                if sums is None:
                    if self._count >= MAX_LINES:
                        line = UNKNOWN
                    self._count += 1
                    sums = lines.setdefault(line, [0.0, 0.0])
                sums[0] += weight
                sums[1] += weight * time_ns
            if self._print and (op, line) not in self._printed and sys.stderr is not None:
                self._printed.add((op, line))
                place = "unknown line" if line.file is None else f"{line.file}:{line.line}"
                print(f"MISSING {op} at {place} in {line.function}", file=sys.stderr)

    def _line(self, frame: FrameType | None) -> Line:
        found = self._user_frame(frame)
        if found is None:
            found = self._backward_frame()
        if found is None:
            return UNKNOWN
        code = found.f_code
        return Line(code.co_filename, found.f_lineno, code.co_qualname, code.co_firstlineno)

    def _user_frame(self, frame: FrameType | None) -> FrameType | None:
        for _ in range(MAX_DEPTH):
            if frame is None:
                return None
            code = frame.f_code
            skipped = self._skipped.get(code)
            if skipped is None:
                skipped = is_internal(code.co_filename)
                if len(self._skipped) < MAX_LINES:
                    self._skipped[code] = skipped
            if not skipped:
                return frame
            frame = frame.f_back
        return None

    def _backward_frame(self) -> FrameType | None:
        """The user's frame of the thread that waits in the autograd engine, if just one does."""
        waiting = []
        for frame in sys._current_frames().values():
            if torch_compat.is_running_backward(frame.f_code):
                waiting.append(frame)
        return self._user_frame(waiting[0]) if len(waiting) == 1 else None
