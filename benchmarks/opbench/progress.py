"""What runs now and how long it will take, on a terminal."""

import sys
import time
from dataclasses import dataclass

import click

from opbench.task import Task


@dataclass
class Progress:
    """A line on stderr that says what runs and how long it will take; nothing where none reads."""

    total: int
    done: int = 0
    _started: float = 0.0
    _measured: int = 0

    def __post_init__(self) -> None:
        self._started = time.monotonic()
        self._shown = sys.stderr.isatty()

    def starts(self, task: Task) -> None:
        left = ""
        if self._measured:
            seconds = (time.monotonic() - self._started) / self._measured
            left = f", {duration(seconds * (self.total - self.done))} left"
        self._show(f"[{self.done + 1}/{self.total}] {task.operator} sample {task.sample}{left}")

    def finished(self) -> None:
        self.done += 1
        self._measured += 1

    def clear(self) -> None:
        self._show("")

    def _show(self, text: str) -> None:
        if self._shown:
            click.echo("\r\033[K" + text[:79], err=True, nl=False)


def duration(seconds: float) -> str:
    """``3725`` → ``"1:02:05"``."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
