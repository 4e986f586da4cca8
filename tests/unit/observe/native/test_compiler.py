"""Compilers that hang, and what they have started: nothing of it outlives the process."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from compilers import Hanging, is_alive
from paths import REPOSITORY
from waiting import wait_until

from instrumented_backend.observe.native.compiler import NativeError, _Lifeline, compile_shared


@pytest.fixture
def hanging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hanging]:
    compiler = Hanging(tmp_path)
    monkeypatch.setenv("CXX", str(compiler.path))
    yield compiler
    compiler.end()


def compiler(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    path = folder / "compiler"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("CXX", str(path))


def compile_in(folder: Path, limit_s: float = 60) -> None:
    folder.mkdir(exist_ok=True)
    compile_shared(folder / "source.cpp", folder / "out.so", [], [], limit_s)


def test_one_that_hangs_is_given_up(hanging: Hanging, tmp_path: Path) -> None:
    with pytest.raises(NativeError, match=r"/hanging took more than 0\.5 s$"):
        compile_in(tmp_path / "build", limit_s=0.5)
    wait_until(lambda: not hanging.alive())


ENDS = {
    "its last line": "",
    "os._exit": "os._exit(0)",
    "SIGTERM": "os.kill(os.getpid(), signal.SIGTERM); time.sleep(600)",
    "SIGKILL": "os.kill(os.getpid(), signal.SIGKILL)",
    "another program": "os.execv('/bin/sh', ['sh', '-c', 'exit 0'])",
    # A child has what its parent had open, and lives on.
    "SIGKILL, with a child": """
child = os.fork()
if child == 0:
    os.close(1); os.close(2)
    time.sleep(600)
print(child, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
""",
}


@pytest.mark.parametrize("ending", ENDS)
def test_it_ends_with_the_process(hanging: Hanging, tmp_path: Path, ending: str) -> None:
    folder = tmp_path / "build"
    folder.mkdir()
    program = f"""
import os, signal, sys, threading, time
from pathlib import Path
from instrumented_backend.observe.native.compiler import compile_shared
folder = Path({str(folder)!r})
arguments = (folder / "source.cpp", folder / "out.so", [], [], 600)
threading.Thread(target=compile_shared, args=arguments, daemon=True).start()
while not os.path.exists({str(hanging.ready)!r}):
    time.sleep(0.01)
{ENDS[ending]}
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    try:
        assert hanging.pids(), done.stderr
        wait_until(lambda: not hanging.alive())
        wait_until(lambda: not folder.exists())  # with the temporary files in it
    finally:
        if done.stdout:
            child = int(done.stdout)
            assert is_alive(child)
            os.kill(child, signal.SIGKILL)


def test_one_that_leaves_something_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not waited for, though it has the compiler's stderr."""
    pid = tmp_path / "pid"
    compiler(tmp_path, monkeypatch, f"sleep 600 & echo $! > {pid}\necho an error >&2; exit 3")
    with pytest.raises(NativeError, match="failed with exit code 3: an error"):
        compile_in(tmp_path / "build")
    wait_until(lambda: not is_alive(int(pid.read_text())))


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (r"printf '\377\376 error \000\n' >&2; exit 1", "exit code 1: \ufffd\ufffd error \0$"),
        ("yes error | head -c 3000000 >&2; exit 1", "exit code 1: error$"),
        ("kill -SEGV $$", f"exit code {128 + signal.SIGSEGV}: "),
        ("exit 0", "exit code 0: no message$"),
    ],
    ids=["not UTF-8", "megabytes", "a signal", "nothing made"],
)
def test_what_one_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str
) -> None:
    compiler(tmp_path, monkeypatch, script)
    with pytest.raises(NativeError, match=message):
        compile_in(tmp_path / "build")


def test_its_temporary_files_are_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler(tmp_path, monkeypatch, 'echo "error: $TMPDIR" >&2; exit 1')
    with pytest.raises(NativeError, match=f"error: {tmp_path}/build$"):
        compile_in(tmp_path / "build")


def test_a_number_that_the_program_has_taken(tmp_path: Path) -> None:
    """It closes files that it does not know, and opens its own."""
    lifeline = _Lifeline()
    numbers = (lifeline.reader, lifeline._writer)
    mine = os.open(tmp_path, os.O_RDONLY)
    for number in numbers:
        os.dup2(mine, number)
    lifeline.cut()
    for number in (mine, *numbers):
        os.close(number)
