"""The line of an eager op, wherever the op runs."""

import ctypes
import linecache
from typing import Any

from instrumented_backend.observe.failures import Failures
from instrumented_backend.observe.ops.lines import UNKNOWN, Lines


def test_a_thread_without_a_frame_of_python() -> None:
    """Such as gloo's, which run DDP's hooks."""
    failures = Failures()
    lines = Lines(failures, False)
    # As the first function of a thread, nothing of Python's is below it.
    sample = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_char_p)(lines.sample)
    libc, thread = ctypes.CDLL(None), ctypes.c_ulong()
    assert libc.pthread_create(ctypes.byref(thread), None, sample, b"aten::add") == 0
    assert libc.pthread_join(thread, None) == 0
    assert failures.notes == []
    assert lines.read() == [UNKNOWN]


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
