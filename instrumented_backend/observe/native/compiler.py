"""Runs the machine's C++ compiler; nothing of it outlives the process that wants its output."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from instrumented_backend.observe.descriptors import close_own, identity_of

_COMPILERS = ("g++", "c++", "clang++")
_MAX_MESSAGES = 64 << 10  # bytes that are read
_REAPED_S = 5.0  # killed processes are gone long before
# Of /proc/PID/stat, after the command's name: the process group; CPU time, with that of children.
_GROUP_FIELD, _TIME_FIELDS = 2, slice(11, 15)

# Its input is a pipe that nobody writes to, whose other end only the process that wants the library
# has. When that has had enough, or has ended in whatever way, the pipe ends, and so does the whole
# process group. (Linux's death signal, PR_SET_PDEATHSIG, would reach the driver alone and not the
# passes that it starts, and is sent when the thread ends that started it.)
_SUPERVISOR = """
exec 3<&0 </dev/null
(
    trap '' TERM
    read -r _ <&3
    kill -TERM 0
    rm -rf "$0"
    kill -KILL 0
) >/dev/null 2>&1 &
exec 3<&-
"$@"
code=$?
trap : TERM
kill -TERM 0
kill -KILL $! 2>/dev/null
wait $! 2>/dev/null
exit $code
"""


# Process groups of the compilers that are at work.
_groups: set[int] = set()


class NativeError(RuntimeError):
    """The native part cannot be built or loaded; the message is one line."""


def compile_shared(
    source: Path, output: Path, flags: Sequence[str], link_flags: Sequence[str], limit_s: float
) -> None:
    """Make ``output``, alone in its folder, where temporary files go, too; raises `NativeError`."""
    compiler = os.environ.get("CXX") or next(filter(shutil.which, _COMPILERS), None)
    if compiler is None:
        raise NativeError(
            f"no C++ compiler found ({', '.join(_COMPILERS)}); install one, or set CXX"
        )
    name, *options = compiler.split() or [compiler]
    if shutil.which(name) is None:
        raise NativeError(f"the compiler {name!r} cannot be run: there is no such program")
    command = [
        *(name, *options, "-O2", "-std=c++20", "-fPIC", "-shared", "-DNDEBUG"),
        *flags,
        *(str(source), "-o", str(output)),
        *link_flags,
    ]
    try:
        code, messages = _run(command, output.parent, limit_s)
    except OSError as error:
        raise NativeError(f"the compiler {name!r} cannot be run: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise NativeError(f"{compiler} took more than {limit_s:g} s") from None
    if code or not output.exists():
        lines = [line.strip() for line in messages.splitlines() if line.strip()]
        errors = [line for line in lines if "error" in line.lower()]
        why = (errors or lines or ["no message"])[0]
        raise NativeError(f"{compiler} failed with exit code {code}: {why[:200]}")


def _run(command: Sequence[str], folder: Path, limit_s: float) -> tuple[int, str]:
    """The exit code and what was said. Raises OSError, TimeoutExpired.

    ``folder`` is removed if this process ends meanwhile.
    """
    messages = folder / "messages"
    lifeline = _Lifeline()
    try:
        with messages.open("wb") as said:  # what a compiler leaves running would keep a pipe open
            process = subprocess.Popen(
                ["/bin/sh", "-c", _SUPERVISOR, str(folder), *command],
                stdin=lifeline.reader,
                stdout=subprocess.DEVNULL,
                stderr=said,
                env={**os.environ, "TMPDIR": str(folder)},
                start_new_session=True,  # Ctrl-C is the program's, not the compiler's
            )
        try:
            _groups.add(process.pid)
            code = process.wait(limit_s)
        finally:
            _groups.discard(process.pid)
            lifeline.cut()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_REAPED_S)
    finally:
        lifeline.cut()
    with messages.open("rb") as said:
        return code, said.read(_MAX_MESSAGES).decode("utf-8", "replace")


def working_s() -> float:
    """CPU seconds that the compilers under way have taken, as far as /proc tells."""
    ticks = 0
    groups = set(_groups)
    for path in Path("/proc").glob("[0-9]*/stat") if groups else ():
        with contextlib.suppress(OSError, ValueError, IndexError):  # a process that has ended
            fields = path.read_text(errors="replace").rpartition(")")[2].split()
            if int(fields[_GROUP_FIELD]) in groups:
                ticks += sum(map(int, fields[_TIME_FIELDS]))
    return ticks / os.sysconf("SC_CLK_TCK")


class _Lifeline:
    """A pipe that ends with this process, and not with the children that it forks."""

    _all: ClassVar["set[_Lifeline]"] = set()

    def __init__(self) -> None:
        self.reader, self._writer = os.pipe()
        self._identity = identity_of(self._writer)
        self._all.add(self)

    def cut(self) -> None:
        """Close both ends, unless the program has, and has opened a file under their numbers."""
        if self in self._all:
            self._all.discard(self)
            for end in (self.reader, self._writer):
                close_own(end, self._identity)

    @classmethod
    def cut_all(cls) -> None:
        for lifeline in list(cls._all):
            lifeline.cut()


os.register_at_fork(after_in_child=_Lifeline.cut_all)
