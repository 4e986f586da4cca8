"""The user's lines on which eager ops are met."""

import linecache
import sys
import threading
from types import CodeType, FrameType
from typing import Any, NamedTuple

from instrumented_backend.observe.failures import Failures
from instrumented_backend.observe.messages.user_code import is_internal
from instrumented_backend.observe.native.methods import has_gil
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
_NOWHERE: _Spot = (0, 0)


class Lines:
    """Finds the line of an op, and numbers the lines that were found.

    Frames of torch, of the standard library and of this package are skipped. Code from ``exec``
    that has no text stands for its caller, if that has one, as it does to Dynamo. Ops of a backward
    run on threads of the autograd engine's own: theirs is the line that called ``backward``.

    The native part is told what was found, and asks for the rest.
    """

    def __init__(self, failures: Failures, print_missing: bool) -> None:
        self._failures = failures
        self._print = print_missing
        self._printed: set[tuple[str, Line]] = set()
        self._lock = threading.Lock()
        self._internal: dict[str, bool] = {}  # by file; code objects take long to hash
        self._native: Any = None
        self._passed: set[int] = set()  # ids of code that the native part knows, and holds
        self.clear()

    def tell(self, lib: Any) -> None:
        """The native part, from now on. Without the interpreter's lock it has to ask for all."""
        if has_gil():
            lib.op_meter_current_backward(autograd.current_backward())
            self._native = lib

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
            backward = -1 if frame is not None else autograd.current_backward()()
            if backward >= 0:
                frame = self._backward_frame()
            spot = _NOWHERE
            if frame is not None:
                spot = (id(frame.f_code), frame.f_lasti)
                number = self._number(spot, frame.f_code)
                if self._native is not None and number and backward >= 0:
                    self._native.op_meter_backward_line(backward, number)
            if self._print:
                self._print_once(name.decode(errors="replace"), self._line(spot))
        return number

    def _number(self, spot: _Spot, code: CodeType) -> int:
        """Of a user's frame; 0 if there are too many lines."""
        with self._lock:
            number = self._numbers.get(spot)
            if number is None and len(self._numbers) < MAX_LINES:
                self._codes[spot[0]] = code
                number = self._numbers[spot] = len(self._numbers)
        if self._native is not None and number and _has_text(code):
            self._native.op_meter_line(code, spot[1], number)
        return number or 0

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
            if self._is_internal(frame.f_code):
                pass
            elif _has_text(frame.f_code):
                return frame
            else:
                without_text = without_text or frame
            frame = frame.f_back
        return without_text

    def _is_internal(self, code: CodeType) -> bool:
        file = code.co_filename
        internal = self._internal.get(file)
        if internal is None:
            internal = is_internal(file)
            if len(self._internal) < MAX_LINES:
                self._internal[file] = internal
        if internal:
            self._tell_passed(code)
        return internal

    def _tell_passed(self, code: CodeType) -> None:
        if self._native is None or id(code) in self._passed or len(self._passed) >= MAX_LINES:
            return
        self._native.op_meter_passed(code)
        self._passed.add(id(code))

    def _backward_frame(self) -> FrameType | None:
        """The user's frame of the thread that waits in the autograd engine, if just one does."""
        waiting = []
        for frame in sys._current_frames().values():
            if autograd.is_running_backward(frame.f_code):
                waiting.append(frame)
        return self._user_frame(waiting[0]) if len(waiting) == 1 else None


def _has_text(code: CodeType) -> bool:
    return not code.co_filename.startswith("<") or code.co_filename in linecache.cache
