"""Processes of this machine, as /proc has them: which run, what they started, their variables."""

import functools
import os
import platform
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from instrumented_backend.records import RunSection

_PARENT, _START = 1, 19  # fields of /proc/PID/stat behind the command's name
_SLACK_S = 2.0  # a report rounds its start to seconds


@dataclass(frozen=True)
class Process:
    pid: int
    parent: int
    started_at: float  # seconds since 1970


def find(pid: int) -> Process | None:
    """The process, or None where it does not run. A zombie does not run."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        if fields[0] in "ZX":
            return None
        return Process(pid, int(fields[_PARENT]), _at(int(fields[_START])))
    except (OSError, ValueError, IndexError):
        return None


@functools.lru_cache(maxsize=4096)
def _at(ticks: int) -> float:
    """Ticks since the machine started, in seconds since 1970. Asked once: the clock may be set."""
    booted_at = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return booted_at + ticks / os.sysconf("SC_CLK_TCK")


def is_alive(run: RunSection) -> bool:
    """Does the process that wrote the report still run here? Another may have its number by now."""
    if run.host not in (None, platform.node()):
        return False
    process = find(run.pid)
    if process is None:
        return False
    try:
        began_at = datetime.fromisoformat(run.started or "").timestamp()
    except (ValueError, OverflowError, OSError):
        return True
    if run.seen_at is not None:  # the clock may have been set since then
        began_at = max(began_at, run.seen_at - (run.wall_s or 0.0))
    return process.started_at <= began_at + _SLACK_S


def with_descendants(pids: Iterable[int]) -> set[int]:
    """The processes and their descendants, as far as they still run."""
    children: dict[int, list[int]] = {}
    running = set()
    for process in _all():
        running.add(process.pid)
        children.setdefault(process.parent, []).append(process.pid)
    found, left = set(), list(pids)
    while left:
        one = left.pop()
        if one in running and one not in found:
            found.add(one)
            left += children.get(one, [])
    return found


def _all() -> Iterator[Process]:
    for name in os.listdir("/proc"):
        if name.isdigit() and (process := find(int(name))) is not None:
            yield process


def variables(pid: int) -> dict[str, str]:
    """The environment that the process was started with; raises OSError."""
    with open(f"/proc/{pid}/environ", "rb") as file:
        entries = os.fsdecode(file.read()).split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def folder(pid: int) -> str:
    """The one that it works in; raises OSError."""
    return os.readlink(f"/proc/{pid}/cwd")
