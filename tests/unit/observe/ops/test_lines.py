"""The line of an eager op, wherever the op runs."""

import ctypes
import linecache
import sys
import threading
from collections.abc import Callable
from types import CodeType
from typing import Any

import pytest
from waiting import wait_until

from instrumented_backend.observe.failures import Failures
from instrumented_backend.observe.ops.lines import UNKNOWN, Lines
from instrumented_backend.torch_compat import autograd


def sample_on_a_bare_thread(lines: Lines) -> int:
    """The line's number."""
    # As the first function of a thread, nothing of Python's is below it.
    sample = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_char_p)(lines.sample)
    libc, thread, number = ctypes.CDLL(None), ctypes.c_ulong(), ctypes.c_long()
    assert libc.pthread_create(ctypes.byref(thread), None, sample, b"aten::add") == 0
    assert libc.pthread_join(thread, ctypes.byref(number)) == 0
    return number.value


def test_a_thread_without_a_frame_of_python() -> None:
    """Such as gloo's, which run DDP's hooks."""
    failures = Failures()
    lines = Lines(failures, False)
    assert sample_on_a_bare_thread(lines) == 0
    assert failures.notes == []
    assert lines.read() == [UNKNOWN]


class NativePart:
    """What it is told of backwards."""

    def __init__(self) -> None:
        self.backwards: dict[int, int] = {}

    def op_meter_current_backward(self, function: Callable[[], int]) -> None:
        assert function() == -1  # here is none under way

    def op_meter_passed(self, code: CodeType) -> None:
        assert code.co_filename != __file__

    def op_meter_line(self, code: CodeType, offset: int, number: int) -> None:
        assert (code.co_filename, number) == (__file__, 1)

    def op_meter_backward_line(self, backward: int, number: int) -> None:
        self.backwards[backward] = number


def test_the_line_of_a_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is where the thread is that waits for it, which the native part is told."""
    failures, native = Failures(), NativePart()
    lines = Lines(failures, False)
    lines.tell(native)
    ended = threading.Lock()

    def backward() -> None:
        with ended:
            pass

    def is_under_way() -> bool:
        return any(frame.f_code is backward.__code__ for frame in sys._current_frames().values())

    monkeypatch.setattr(autograd, "is_running_backward", lambda code: code is backward.__code__)
    for number in (7, -1):  # -1: the thread works for none, such as one of gloo's
        monkeypatch.setattr(autograd, "current_backward", lambda number=number: lambda: number)
        with ended:
            thread = threading.Thread(target=backward)
            thread.start()
            wait_until(is_under_way)
            assert sample_on_a_bare_thread(lines) == (number == 7)
        thread.join()
    assert lines.read()[1].function == backward.__qualname__
    assert native.backwards == {7: 1}
    assert failures.notes == []  # where what the native part was told was wrong


def test_code_from_exec_stands_for_its_caller() -> None:
    """It has no text to show, and Dynamo leaves it out as well."""
    lines = Lines(Failures(), False)
    made: dict[str, Any] = {"sample": lines.sample}
    exec("def f():\n    return sample(b'aten::add')\n", made)

    def caller() -> None:
        made["f"]()

    caller()
    found = lines.read()[1]
    assert (found.file, found.line) == (__file__, caller.__code__.co_firstlineno + 1)


def test_text_that_python_keeps_is_shown() -> None:
    """Such as of a notebook's cells, or of a function that a library wrote."""
    lines = Lines(Failures(), False)
    text = "def f():\n    return sample(b'aten::add')\n"
    file = "<made by a test>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    try:
        made: dict[str, Any] = {"sample": lines.sample}
        exec(compile(text, file, "exec"), made)
        made["f"]()
        assert (lines.read()[1].file, lines.read()[1].line) == (file, 2)
    finally:
        del linecache.cache[file]
