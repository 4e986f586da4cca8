"""One run of the program: a process group of its own, in an empty folder, with a time limit."""

import contextlib
import ctypes
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from instrumented_backend.records import Report, ReportError, read_report
from instrumented_backend.trials import plan
from instrumented_backend.units import signal_name

MAX_OUTPUT = 1 << 22  # bytes of the program's stdout that are compared
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Program:
    """``shared``: what of the working folder each run finds in its own, by its name there."""

    words: Sequence[str]
    environ: Mapping[str, str]
    shared: Sequence[Path]
    working_folder: Path


@dataclass(frozen=True)
class Outcome:
    """``error`` says in one line why the run is of no use; None for one that is."""

    ran: plan.Ran | None
    error: str | None
    stdout: str
    wall_s: float
    ready_s: float | None = None  # from the process's start to the first measured step
    whole: Report | None = None
    measured: Report | None = None  # the report of the measured steps


def run(program: Program, asked: plan.Plan, cache: Path, folder: Path, limit_s: float) -> Outcome:
    """``folder`` is for what the two processes exchange; ``cache`` is Inductor's."""
    with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as mine:
        ours = Path(mine, "ours")
        ours.mkdir()
        plan.write(ours, plan.PLAN, asked)
        stdout, stderr = Path(mine, "stdout"), Path(mine, "stderr")
        with open(stdout, "wb") as out, open(stderr, "wb") as err:
            started_at = time.monotonic()
            process = subprocess.Popen(
                program.words,
                env=_environ(program.environ, asked, cache, ours),
                cwd=_working_folder(program, Path(mine, "folder")),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
            ended = _wait(process, limit_s)
        wall_s = time.monotonic() - started_at
        text = _read(stdout)
        ran = _ran(ours, process.pid)
        error = _error(ended, process.returncode, limit_s, stderr)
        if ran is None and error is None:
            error = "torch was not imported in a Python that has this package"
        if error is not None or ran is None:
            return Outcome(None, error, text, wall_s)
        ready_s = None if ran.ready_at is None else ran.ready_at - started_at
        whole = _report(ours / f"{ran.pid}.{plan.WHOLE}")
        measured = _report(ours / f"{ran.pid}.{plan.STEPS}")
        return Outcome(ran, None, text, wall_s, ready_s, whole, measured)


def _environ(
    environ: Mapping[str, str], asked: plan.Plan, cache: Path, ours: Path
) -> dict[str, str]:
    """A run that is timed is plain Inductor's; one that is observed sees all eager ops if it is
    the program as it is, from which the bounds come."""
    kept = {name: value for name, value in environ.items() if name not in _NOT_KEPT}
    return {
        **kept,
        "INSTRUMENTED_ADOPT": "1",
        "INSTRUMENTED_TRIAL": str(ours),
        "INSTRUMENTED_TABLES": "none",
        "INSTRUMENTED_DISABLE": "0" if asked.observe else "1",
        "INSTRUMENTED_OPS": "always" if asked.observe and asked.change is None else "off",
        "TORCHINDUCTOR_CACHE_DIR": str(cache),
    }


_NOT_KEPT = frozenset(
    {"INSTRUMENTED_DIR", "INSTRUMENTED_HTML", "INSTRUMENTED_RUN", "INSTRUMENTED_DEVICE_TIME"}
    | {"TORCHDYNAMO_PRINT_MISSING", "TRITON_CACHE_DIR"}
)


def _working_folder(program: Program, folder: Path) -> Path:
    """An empty one with links to what is shared."""
    if program.working_folder in program.shared:
        return program.working_folder
    folder.mkdir()
    for path in program.shared:
        if any(other in path.parents for other in program.shared):
            continue  # it is in what is linked as a whole
        link = folder / path.relative_to(program.working_folder)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path)
    return folder


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))


def _wait(process: "subprocess.Popen[bytes]", limit_s: float) -> bool:
    """Did it end by itself? Nothing of its group is left afterwards."""
    try:
        process.wait(limit_s)
        return True
    except subprocess.TimeoutExpired:
        return False
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _error(ended: bool, code: int, limit_s: float, stderr: Path) -> str | None:
    if not ended:
        return f"killed after {limit_s:.0f} s, the time limit of a run"
    if code == 0:
        return None
    last = _said(_read(stderr))
    if code < 0:
        return f"ended by {signal_name(-code)}" + (f": {last}" if last else "")
    return last or f"ended with exit code {code}"


_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)\b")


def _said(stderr: str) -> str:
    """The exception of the last traceback; else the last line."""
    lines = [line.rstrip() for line in stderr.split("\n") if line.strip()]
    exceptions = (line for line in reversed(lines) if _EXCEPTION.match(line))
    return next(exceptions, lines[-1].strip() if lines else "")


def _ran(folder: Path, pid: int) -> plan.Ran | None:
    """Of a process that has steps, of ranks the first, and else the one with most of them."""
    found = []
    for path in folder.glob("ran.*.json"):
        with contextlib.suppress(OSError, ValueError):
            found.append(plan.read(path, plan.Ran))
    return max(
        found,
        key=lambda ran: (ran.unit is not None, -ran.rank, ran.marks, ran.pid == pid),
        default=None,
    )


def _report(path: Path) -> Report | None:
    try:
        return read_report(path) if path.exists() else None
    except ReportError:
        return None


def _read(path: Path) -> str:
    with open(path, "rb") as file:
        return file.read(MAX_OUTPUT).decode(errors="replace")


@contextlib.contextmanager
def folder_of_trial() -> Iterator[Path]:
    """For caches and what is exchanged; nothing of it is left."""
    folder = tempfile.mkdtemp(prefix="instrumented-try-")
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
