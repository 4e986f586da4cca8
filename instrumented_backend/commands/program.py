"""What a command line names: a Python program, or a command as a shell finds it."""

import os
import stat
import subprocess
import sys
import zipfile
from dataclasses import dataclass

NOT_EXECUTABLE = 126  # the exit codes of a shell
NOT_FOUND = 127
PYTHON = (".py", ".pyw", ".pyc")


class NoSuchProgram(Exception):
    """The message is one line, and ``exit_code`` a shell's."""

    def __init__(self, name: str, reason: str, exit_code: int) -> None:
        super().__init__(f"{name}: {reason}")
        self.name, self.reason = name, reason
        self.exit_code = exit_code


@dataclass(frozen=True)
class Program:
    """The file that is executed, and its arguments, of which the first is its name."""

    path: str
    arguments: tuple[str, ...]


def python(*arguments: str) -> Program:
    """This Python, with the switches that this process was started with."""
    switches = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return Program(sys.executable, (sys.executable, *switches, *arguments))


def named(arguments: tuple[str, ...]) -> Program:
    """A Python program by its file, or what a shell would run. Raises `NoSuchProgram`.

    A file is Python's if it is called so, or is a folder or an archive, which Python runs and a
    shell does not. One of any other name, too, if it is text that a shell would not run either.
    """
    name = arguments[0]
    if name.endswith(PYTHON) or os.path.isdir(name) or _is_archive(name):
        return python(*arguments)
    try:
        return command(arguments)
    except NoSuchProgram:
        if os.path.isfile(name) and not os.path.splitext(name)[1]:
            return python(*arguments)
        raise


def command(arguments: tuple[str, ...]) -> Program:
    """What a shell would run: a path, or a name on the PATH. Raises `NoSuchProgram`."""
    name = arguments[0]
    if "/" in name:
        if os.path.isdir(name):
            raise NoSuchProgram(name, "Is a directory", NOT_EXECUTABLE)
        if _can_be_run(name):
            return Program(name, arguments)
        if os.path.lexists(name):
            raise NoSuchProgram(name, "Permission denied", NOT_EXECUTABLE)
        raise NoSuchProgram(name, "No such file or directory", NOT_FOUND)
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep) if name else []
    candidates = [os.path.join(folder or ".", name) for folder in folders]
    for path in candidates:
        if _can_be_run(path):
            return Program(path, arguments)
    if any(map(os.path.isfile, candidates)):
        raise NoSuchProgram(name, "Permission denied", NOT_EXECUTABLE)
    raise NoSuchProgram(name, "command not found", NOT_FOUND)


def _can_be_run(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode) and os.access(path, os.X_OK)
    except OSError:
        return False


def _is_archive(path: str) -> bool:
    # A pipe would be waited for.
    return os.path.isfile(path) and not os.access(path, os.X_OK) and zipfile.is_zipfile(path)
