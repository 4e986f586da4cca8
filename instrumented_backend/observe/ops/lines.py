"""The user's lines on which eager ops are met."""

import linecache
import sys
import threading
from types import CodeType, FrameType
from typing import NamedTuple

from instrumented_backend.observe.failures import Failures
from instrumented_backend.observe.messages.user_code import is_internal
from instrumented_backend.records.escapes import shown
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
# A code object's id and an offset in its bytecode: what a sample can note most cheaply.
_Spot = tuple[int, int]
_Place = tuple[CodeType, int]  # the code object itself
_NOWHERE: _Spot = (0, 0)


class Lines:
    """Finds the line of an op, and numbers the lines that were found.

    Frames of torch, of the standard library and of this package are skipped. Code from ``exec``
    that has no text stands for its caller, if that has one, as it does to Dynamo. Ops of a backward
    run on threads of the autograd engine's own: theirs is the line that called ``backward``.
    """

    def __init__(self, failures: Failures, print_missing: bool) -> None:
        self._failures = failures
        self._print = print_missing
        self._printed: set[tuple[str, Line]] = set()
        self._lock = threading.Lock()
        self._internal: dict[str, bool] = {}  # by file; code objects take long to hash
        self._last_backward: tuple[int, _Place] | None = None  # its number, and who called it
        self.clear()

    def clear(self) -> None:
        with self._lock:
            self._numbers: dict[_Spot, int] = {_NOWHERE: 0}
            self._codes: dict[int, CodeType] = {}  # held, or their ids could be another's

    def after_fork(self) -> None:
        self._lock = threading.Lock()
        self.clear()

    def read(self) -> list[Line]:
        """By their numbers."""
        with self._lock:
            return [self._line(spot) for spot in self._numbers]

    def sample(self, name: bytes) -> int:
        """Called by the native part, on the thread of the op, right after it.

        The number of the op's line; -1 where Ctrl-C came meanwhile, which the native part then
        passes on to the program.
        """
        try:
            return self._sample(name)
        except KeyboardInterrupt:
            return -1

    def _sample(self, name: bytes) -> int:
        number = 0
        with self._failures.guard("lines of eager ops"):
            # A thread of C++, such as gloo's, has no frame of Python below ours.
            frame = self._user_frame(sys._getframe(1).f_back)
            place = self._backward_place() if frame is None else (frame.f_code, frame.f_lasti)
            spot = _NOWHERE if place is None else (id(place[0]), place[1])
            with self._lock:
                found = self._numbers.get(spot)
                if found is None and place is not None and len(self._numbers) < MAX_LINES:
                    self._codes[spot[0]] = place[0]
                    found = self._numbers[spot] = len(self._numbers)
                number = found or 0
            if self._print:
                self._print_once(name.decode(errors="replace"), self._line(spot))
        return number

    def _print_once(self, op: str, line: Line) -> None:
        if (op, line) in self._printed or sys.stderr is None:
            return
        self._printed.add((op, line))
        place = "unknown line" if line.file is None else f"{line.file}:{line.line}"
        print(shown(f"MISSING {op} at {place} in {line.function}"), file=sys.stderr)

    def _line(self, spot: _Spot) -> Line:
        code = self._codes.get(spot[0])
        if code is None:
            return UNKNOWN
        lines = [line for start, end, line in code.co_lines() if start <= spot[1] < end]
        line = lines[0] if lines else None
        return Line(code.co_filename, line, code.co_qualname, code.co_firstlineno)

    def _user_frame(self, frame: FrameType | None) -> FrameType | None:
        without_text = None  # code that was made while the program ran: nobody can look at it
        for _ in range(MAX_DEPTH):
            if frame is None:
                break
            file = frame.f_code.co_filename
            internal = self._internal.get(file)
            if internal is None:
                internal = is_internal(file)
                if len(self._internal) < MAX_LINES:
                    self._internal[file] = internal
            if not internal:
                if not file.startswith("<") or file in linecache.cache:
                    return frame
                without_text = without_text or frame
            frame = frame.f_back
        return without_text

    def _backward_place(self) -> _Place | None:
        """Where the backward was called that this thread works for.

        It is looked for once, among the frames of all threads: that takes longer than an op.
        """
        number, last = autograd.current_backward(), self._last_backward
        if last is not None and last[0] == number:
            return last[1]
        frame = self._backward_frame()
        if frame is None:
            return None
        place = (frame.f_code, frame.f_lasti)
        if number >= 0:
            self._last_backward = (number, place)
        return place

    def _backward_frame(self) -> FrameType | None:
        """The user's frame of the thread that waits in the autograd engine, if just one does."""
        waiting = []
        for frame in sys._current_frames().values():
            if autograd.is_running_backward(frame.f_code):
                waiting.append(frame)
        return self._user_frame(waiting[0]) if len(waiting) == 1 else None
