"""A program below this process as if in its place: stdin, terminal, signals, ending."""

import contextlib
import ctypes
import errno
import os
import resource
import signal
import sys
from collections.abc import Iterable, Mapping
from typing import NoReturn

from instrumented_backend.commands.program import NOT_EXECUTABLE, NOT_FOUND, NoSuchProgram, Program

# What a terminal, a launcher or a job's scheduler sends to a program.
_PASSED_ON = frozenset(
    {
        *(signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM),
        *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM),
        *(signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH),
    }
)
_WATCHED = _PASSED_ON | {signal.SIGCHLD}
_PR_SET_PDEATHSIG = 1


def run(program: Program, environ: Mapping[str, str]) -> int:
    """Run it until it ends; returns its status as `os.waitpid` does. Raises `NoSuchProgram`.

    It stays in our process group, so that what a terminal sends reaches it, too. What another
    process sends to us is passed on. If it is stopped, so are we. If we are killed, so is it.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    try:
        return _wait(_start(program, environ, mask))
    finally:
        # One that came after the end was meant for the program.
        while signal.sigtimedwait(_WATCHED, 0) is not None:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def execute(program: Program, environ: Mapping[str, str]) -> NoReturn:
    """In the place of this process. Raises `NoSuchProgram`."""
    # Python ignores these two, and would have the program ignore them.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        try:
            os.execve(program.path, program.arguments, environ)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            # As a shell does with a script without a first line.
            arguments = ("/bin/sh", program.path, *program.arguments[1:])
            os.execve("/bin/sh", arguments, environ)
    except OSError as error:
        raise _not_started(program, error.errno) from None


def _not_started(program: Program, number: int | None) -> NoSuchProgram:
    code = NOT_FOUND if number in (errno.ENOENT, errno.ENOTDIR) else NOT_EXECUTABLE
    return NoSuchProgram(program.arguments[0], os.strerror(number or 0), code)


def end_as(status: int) -> NoReturn:
    """End this process as a child has ended, by the same signal if it was one."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the program has left its own
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


def _start(program: Program, environ: Mapping[str, str], mask: Iterable[int]) -> int:
    parent = os.getpid()
    reader, writer = os.pipe()  # closed by a program that starts
    child = os.fork()
    if child == 0:
        try:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
            if os.getppid() == parent:
                # Python's handlers don't outlive `exec`; what is ignored stays so.
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
                execute(program, environ)
        except NoSuchProgram as error:
            said = f"{error.exit_code}\0{error.name}\0{error.reason}"
            os.write(writer, said.encode(errors="surrogateescape"))
        finally:
            os._exit(NOT_FOUND)
    os.close(writer)
    with open(reader, "rb") as pipe:
        said = pipe.read().decode(errors="surrogateescape")
    if said:
        os.waitpid(child, 0)
        code, name, reason = said.split("\0")
        raise NoSuchProgram(name, reason, int(code))
    return child


def _wait(child: int) -> int:
    while True:
        received = signal.sigwaitinfo(_WATCHED)
        if received.si_signo == signal.SIGCHLD:
            pid, status = os.waitpid(child, os.WNOHANG | os.WUNTRACED)
            if pid and os.WIFSTOPPED(status):
                os.kill(os.getpid(), signal.SIGSTOP)
            elif pid:
                return status
        # The terminal's have reached the child, too; they come from the kernel.
        elif received.si_code <= 0 or received.si_signo == signal.SIGCONT:
            os.kill(child, received.si_signo)
