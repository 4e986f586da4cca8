"""Where the program called something, and the call as it stands there."""

import ast
import functools
import itertools
import linecache
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType

from instrumented_backend.observe.messages.user_code import is_installed, is_internal
from instrumented_backend.observe.parsing import may_parse

MAX_ARGUMENT = 40  # characters
_IMPORT = "<frozen importlib"


@dataclass(frozen=True)
class CallSite:
    """A call under way; columns are of bytes, as Python keeps them."""

    file: str
    line: int
    end_line: int | None
    column: int | None
    end_column: int | None

    def text(self) -> str | None:
        """``torch.compile(model)``, ``@torch.compile`` or ``model.compile()``.

        None where the source can't be read, or not on this thread; keyword arguments are left out.
        """
        call = self._call() if may_parse() else None
        return None if call is None else _words(call)

    def receiver(self) -> str | None:
        """``model`` of ``model.compile()``; None like the text."""
        call = self._call() if may_parse() else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            return _short(call.func.value)
        return None

    @functools.cache  # noqa: B019 - as many as the program has lines that call torch.compile
    def _call(self) -> ast.expr | None:
        if self.end_line is None or self.column is None or self.end_column is None:
            return None
        lines = linecache.getlines(self.file)[self.line - 1 : self.end_line]
        if len(lines) != self.end_line - self.line + 1:
            return None
        part = [line.encode() for line in lines]
        part[-1] = part[-1][: self.end_column]
        part[0] = part[0][self.column :]
        try:
            return ast.parse(b"(" + b"".join(part) + b"\n)", mode="eval").body
        except (SyntaxError, ValueError):
            return None


def _words(call: ast.expr) -> str:
    if not isinstance(call, ast.Call):
        return f"@{ast.unparse(call)}"
    function = _short(call.func)
    if call.args:
        return f"{function}({_short(call.args[0])})"
    is_torchs = function.partition(".")[0] in ("torch", "compile")
    return f"@{function}" if is_torchs else f"{function}()"


def _short(node: ast.expr) -> str:
    text = ast.unparse(node)
    return text if len(text) <= MAX_ARGUMENT else f"{text[: MAX_ARGUMENT - 3]}..."


def call_site(frame: FrameType | None) -> CallSite | None:
    """The user's own call that led to ``frame``.

    It is that of an installed package where there is none, or where the package was being imported.
    """
    package = None
    for caller in callers(frame):
        file = caller.f_code.co_filename
        if package is not None and file.startswith(_IMPORT):
            break
        if is_internal(file):
            continue
        if not is_installed(file):
            return _site(caller)
        package = package or caller
    return None if package is None else _site(package)


def callers(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _site(frame: FrameType) -> CallSite:
    positions = frame.f_code.co_positions()
    line, end_line, column, end_column = next(
        itertools.islice(positions, frame.f_lasti // 2, None), (None, None, None, None)
    )
    if line is None:
        return CallSite(frame.f_code.co_filename, frame.f_lineno or 0, None, None, None)
    return CallSite(frame.f_code.co_filename, line, end_line, column, end_column)
