"""A terminal's whole screen and its keys, lent to one picture; afterwards all is as it was."""

import contextlib
import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from types import FrameType
from typing import Any

from rich.console import Console, ConsoleDimensions, RenderableType
from rich.control import Control
from rich.screen import Screen

_KEYS = {
    b"q": "quit",
    b"Q": "quit",
    b"k": "up",
    b"j": "down",
    b"\x1b[A": "up",
    b"\x1bOA": "up",
    b"\x1b[B": "down",
    b"\x1bOB": "down",
    b"\x1b[5~": "page up",
    b"\x1b[6~": "page down",
}
_SMALLEST = (80, 24)  # of a terminal that says that it has no size
_FATAL = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_NOTED = (signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT)


class Killed(BaseException):
    """A signal that ends the program, once the terminal is as it was."""

    def __init__(self, number: int) -> None:
        self.number = number


class Terminal:
    """stdout's terminal, and stdin's keys if that is a terminal, too."""

    def __init__(self) -> None:
        self.console = Console(file=sys.stdout, highlight=False)
        self._in = 0 if os.isatty(0) else None
        self._modes: list[Any] | None = None
        self._handlers: dict[int, Any] = {}
        self._noted: set[int] = set()
        self._woken, self._wake = os.pipe()
        for end in (self._woken, self._wake):
            os.set_blocking(end, False)

    @property
    def utf8(self) -> bool:
        return self.console.encoding.lower().startswith("utf")

    @property
    def has_keys(self) -> bool:
        return self._in is not None

    def __enter__(self) -> "Terminal":
        for number in (*_FATAL, *_NOTED):
            if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
                handler = self._end if number in _FATAL else self._note
                self._handlers[number] = signal.signal(number, handler)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        try:
            self._take()
        except BaseException:  # Ctrl-C too: the terminal is put back, whatever it was
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        # A second Ctrl-C must not leave the terminal half restored.
        was = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            with contextlib.suppress(OSError):  # the terminal is gone
                self._give_back()
        finally:
            signal.set_wakeup_fd(-1)
            for number, handler in self._handlers.items():
                signal.signal(number, handler)
            signal.signal(signal.SIGINT, was)
            os.close(self._woken)
            os.close(self._wake)

    def show(self, picture: RenderableType) -> None:
        """Draw over all that is on the screen. Raises OSError where the terminal is gone."""
        self.console.control(Control.home())
        self.console.print(Screen(picture), end="")

    def size(self) -> tuple[int, int]:
        """Columns and lines, as they are now."""
        try:
            columns, lines = os.get_terminal_size(sys.stdout.fileno())
        except OSError:
            columns, lines = _SMALLEST
        # Not what COLUMNS and LINES say: they don't know of a change.
        size = (columns or _SMALLEST[0], lines or _SMALLEST[1])
        self.console.size = ConsoleDimensions(*size)
        return size

    def wait(self, seconds: float) -> list[str]:
        """Wait for keys. Returns nothing after that time, or when the terminal was resized."""
        listened = [self._woken] if self._in is None else [self._woken, self._in]
        ready, _, _ = select.select(listened, [], [], seconds)
        if self._woken in ready:
            os.read(self._woken, 4096)
        if signal.SIGTSTP in self._noted:
            self._stop()
        elif signal.SIGCONT in self._noted:  # after SIGSTOP: the shell had the terminal meanwhile
            self._take()
        self._noted.clear()
        return list(self._keys()) if self._in in ready else []

    def _keys(self) -> Iterator[str]:
        assert self._in is not None
        try:
            typed = os.read(self._in, 4096)
        except OSError:
            typed = b""
        if not typed:  # nobody will type any more
            self._in = None
        while typed:
            known = next((key for key in _KEYS if typed.startswith(key)), typed[:1])
            if known in _KEYS:
                yield _KEYS[known]
            typed = typed[len(known) :]

    def _take(self) -> None:
        if self._in is not None:
            if self._modes is None:
                self._modes = termios.tcgetattr(self._in)
            tty.setcbreak(self._in, termios.TCSANOW)
        if not self.console.is_alt_screen:
            self.console.set_alt_screen(True)
        self.console.show_cursor(False)

    def _give_back(self) -> None:
        try:
            if self._in is not None and self._modes is not None:
                termios.tcsetattr(self._in, termios.TCSANOW, self._modes)
        except termios.error as error:
            raise OSError(*error.args) from None
        finally:
            self.console.show_cursor(True)
            self.console.set_alt_screen(False)

    def _stop(self) -> None:
        """Ctrl-Z: the shell has the terminal until it lets this process go on."""
        self._give_back()
        handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, handler)
        self._take()

    def _note(self, number: int, _: FrameType | None) -> None:
        self._noted.add(number)

    def _end(self, number: int, _: FrameType | None) -> None:
        raise Killed(number)
