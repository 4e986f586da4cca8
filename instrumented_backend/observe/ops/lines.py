"""The user's lines on which eager ops were met, by sampling."""

import sys
import threading
from types import CodeType, FrameType
from typing import NamedTuple

from instrumented_backend.observe.failures import Failures
from instrumented_backend.observe.messages.user_code import is_internal
from instrumented_backend.torch_compat import autograd

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
# A code object's id and an offset in its bytecode: what a sample can note most cheaply.
_Spot = tuple[int, int]
_NOWHERE: _Spot = (0, 0)


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
        self._internal: dict[str, bool] = {}  # by file; code objects take long to hash
        self.clear()

    def clear(self) -> None:
        with self._lock:
            # By op name, gap, ordinal; then by spot: [weight, nanoseconds times weight].
            self._weights: dict[tuple[bytes, int, int], dict[_Spot, list[float]]] = {}
            self._codes: dict[int, CodeType] = {}  # held, or their ids could be another's
            self._count = 0

    def after_fork(self) -> None:
        self._lock = threading.Lock()
        self.clear()

    def read(self) -> dict[Place, dict[Line, list[float]]]:
        """Place → line → [weight, nanoseconds times weight]."""
        found: dict[Place, dict[Line, list[float]]] = {}
        with self._lock:
            for (name, gap, ordinal), spots in self._weights.items():
                lines = found.setdefault((name.decode(errors="replace"), gap, ordinal), {})
                for spot, (weight, time_ns) in spots.items():
                    sums = lines.setdefault(self._line(spot), [0.0, 0.0])
                    sums[0] += weight
                    sums[1] += time_ns
        return found

    def sample(self, name: bytes, gap: int, ordinal: int, time_ns: int, weight: float) -> bool:
        """Called by the native part, on the thread of the op, right after it.

        Whether Ctrl-C came meanwhile, which the native part then passes on to the program.
        """
        try:
            self._note(name, gap, ordinal, time_ns, weight)
        except KeyboardInterrupt:
            return True
        return False

    def _note(self, name: bytes, gap: int, ordinal: int, time_ns: int, weight: float) -> None:
        with self._failures.guard("lines of eager ops"):
            frame = self._user_frame(sys._getframe(2)) or self._backward_frame()
            with self._lock:
                spots = self._weights.get((name, gap, ordinal))
                if spots is None:
                    spots = self._weights[name, gap, ordinal] = {}
                spot = _NOWHERE if frame is None else (id(frame.f_code), frame.f_lasti)
                sums = spots.get(spot)
                if sums is None:
                    if self._count >= MAX_LINES:
                        spot = _NOWHERE
                    elif frame is not None:
                        self._codes[spot[0]] = frame.f_code
                    self._count += 1
                    sums = spots.setdefault(spot, [0.0, 0.0])
                sums[0] += weight
                sums[1] += weight * time_ns
            if self._print:
                self._print_once(name.decode(errors="replace"), self._line(spot))

    def _print_once(self, op: str, line: Line) -> None:
        if (op, line) in self._printed or sys.stderr is None:
            return
        self._printed.add((op, line))
        place = "unknown line" if line.file is None else f"{line.file}:{line.line}"
        print(f"MISSING {op} at {place} in {line.function}", file=sys.stderr)

    def _line(self, spot: _Spot) -> Line:
        code = self._codes.get(spot[0])
        if code is None:
            return UNKNOWN
        lines = [line for start, end, line in code.co_lines() if start <= spot[1] < end]
        line = lines[0] if lines else None
        return Line(code.co_filename, line, code.co_qualname, code.co_firstlineno)

    def _user_frame(self, frame: FrameType | None) -> FrameType | None:
        for _ in range(MAX_DEPTH):
            if frame is None:
                return None
            file = frame.f_code.co_filename
            internal = self._internal.get(file)
            if internal is None:
                internal = is_internal(file)
                if len(self._internal) < MAX_LINES:
                    self._internal[file] = internal
            if not internal:
                return frame
            frame = frame.f_back
        return None

    def _backward_frame(self) -> FrameType | None:
        """The user's frame of the thread that waits in the autograd engine, if just one does."""
        waiting = []
        for frame in sys._current_frames().values():
            if autograd.is_running_backward(frame.f_code):
                waiting.append(frame)
        return self._user_frame(waiting[0]) if len(waiting) == 1 else None
