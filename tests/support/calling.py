"""Commands called in this process: faster than in one of their own, and a traceback is an error."""

import contextlib
import gc
import io
import sys
from unittest import mock

from programs import Finished

from instrumented_backend import commands


def call(*arguments: object) -> Finished:
    """``instrumented-backend ARGUMENTS``; whatever it raises but its exit comes through."""
    out, err = _stream("strict"), _stream("backslashreplace")  # as Python has them
    with (
        mock.patch.object(sys, "argv", ["instrumented-backend", *map(str, arguments)]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            commands.main()
            code = 0
        except SystemExit as ended:
            assert isinstance(ended.code, int | None)
            code = ended.code or 0
        finally:
            gc.enable()  # `kernels` leaves it off
    return Finished(code, _text(out), _text(err), [])


def _stream(errors: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), "utf-8", errors, newline="")


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue().decode("utf-8", "surrogateescape")


def is_one_line(done: Finished) -> bool:
    """Refused in one line, and nothing else said."""
    return (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
