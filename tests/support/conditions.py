"""A program in some condition, run with Inductor and with us: what must be the same."""

import re
import signal
from dataclasses import dataclass, field
from pathlib import Path

from paths import REPOSITORY
from programs import Finished, RunProgram

# Every program has these: a compiled step with a call inside it that does what ``hook`` says.
PRELUDE = """
import atexit, os, signal, sys, threading, time, torch
{before}
sys.path.insert(0, {repository!r})
BACKEND = {backend!r}
if BACKEND == "instrumented":
    import instrumented_backend

def compiled(function, **keywords):
    return torch.compile(function, backend=BACKEND, **keywords)

@torch.library.custom_op("hostile::inside", mutates_args=())
def inside(x: torch.Tensor) -> torch.Tensor:
    hook()
    return x.clone()

inside.register_fake(torch.empty_like)
hook = lambda: None
step = compiled(lambda x: torch.ops.hostile.inside(x.sin()) + 1)
ones = torch.ones(4)
"""


@dataclass(frozen=True)
class Condition:
    """A program, and how many report files there are after it has run with us."""

    source: str
    reports: int | None = 1  # None: with us or past us
    before: str = ""  # the first compilation
    env: dict[str, str | None] = field(default_factory=dict)
    same_stderr: bool = True
    nothing_lost: bool = True


# Between the program's own frames, torch's depend on its caches, and ours are there or not.
_FRAME = re.compile(r'^ *File "(?![^"]*/program\d)[^\n]*\n(?: {4}[^\n]*\n)*', re.M)


_VARYING = re.compile(
    r"0x[0-9a-f]+|\btmp\w{8}\b|\b\d+:\d+\b|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|[VWEI]\d{4} \S+ \d+"
)


def program(condition: Condition, backend: str) -> str:
    prelude = PRELUDE.format(repository=str(REPOSITORY), backend=backend, before=condition.before)
    return prelude + condition.source


def run_both(run: RunProgram, condition: Condition, folder: Path) -> tuple[Finished, Finished]:
    """With Inductor and with us, each in a working folder of its own that is its HOME, too."""
    done = []
    for backend in ("inductor", "instrumented"):
        working = folder / backend / "work"
        working.mkdir(parents=True)
        env = {"INSTRUMENTED_TABLES": "none", "HOME": str(working), **condition.env}
        done.append(run(program(condition, backend), env=env, check=False, cwd=working))
    return done[0], done[1]


def same(condition: Condition, folder: Path, theirs: Finished, ours: Finished) -> None:
    assert theirs.returncode != -signal.SIGKILL, "it took too long"
    assert ours.returncode == theirs.returncode, ours.stderr
    assert ours.stdout == theirs.stdout, ours.stderr
    assert files(folder / "instrumented") == files(folder / "inductor")
    if condition.same_stderr:
        assert plain(ours.stderr) == plain(theirs.stderr)
    assert ours.stderr.count("Traceback") == theirs.stderr.count("Traceback")
    if condition.reports is not None:
        assert len(ours.reports) == condition.reports
    assert not theirs.reports
    if condition.nothing_lost:
        assert not [n for report in ours.reports for n in report["notes"] if "lost:" in n]


def files(folder: Path) -> dict[str, bytes]:
    """What each holds; of a library only that it is there.

    Triton's are built in a temporary folder, whose name they keep: no two builds are the same.
    """
    return {
        str(path.relative_to(folder)): (
            path.read_bytes() if path.is_file() and path.suffix != ".so" else b""
        )
        for path in folder.rglob("*")
    }


def plain(stderr: str) -> str:
    """Of tracebacks the program's own frames, and nothing that differs from run to run."""
    stderr = _FRAME.sub("", stderr)
    stderr = re.sub(r"instrumented/work|inductor/work", "work", stderr)
    stderr = re.sub(r"program\d+", "program", stderr)
    # Said of the machine, in whichever compilation first comes to it.
    stderr = re.sub(r".*No CUDA runtime is found.*\n", "", stderr)
    return _VARYING.sub("", stderr)
