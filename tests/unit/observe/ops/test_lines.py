"""The line of an eager op, wherever the op runs."""

import ctypes

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
