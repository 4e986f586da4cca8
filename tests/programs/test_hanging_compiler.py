"""A compiler that hangs, or a folder of another user, costs figures and never the program."""

import signal
from pathlib import Path

import pytest
from compilers import Hanging
from filelock import FileLock
from programs import RunProgram
from waiting import wait_until

from instrumented_backend.observe.native import build, cache
from instrumented_backend.records import notes

# As if twenty seconds were over soon.
PROGRAM = """
    import os, signal, sys, time, torch
    from instrumented_backend.observe.native import build
    build.PATIENCE_S = {patience}
    f = torch.compile(lambda x: x + 1, backend="instrumented")
    for _ in range(3):
        f(torch.ones(2))
    while not os.path.exists({ready!r}):
        time.sleep(0.01)
    {ending}
"""


@pytest.mark.parametrize(
    ("mode", "ending", "code"),
    [
        ("auto", "print('last')", 0),
        ("always", "sys.exit(3)", 3),
        ("auto", "os.kill(os.getpid(), signal.SIGTERM); time.sleep(600)", -signal.SIGTERM),
        ("auto", "os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
    ],
    ids=["auto", "always", "SIGTERM", "SIGKILL"],
)
def test_a_compiler_that_hangs(
    run_forked: RunProgram, tmp_path: Path, mode: str, ending: str, code: int
) -> None:
    compiler = Hanging(tmp_path, makes=2)  # the op meter, and graph calls
    try:
        done = run_forked(
            PROGRAM.format(patience=0.7, ready=str(compiler.ready), ending=ending),
            env={
                "CXX": str(compiler.path),
                "XDG_CACHE_HOME": str(tmp_path / "empty"),
                "INSTRUMENTED_OPS": mode,
            },
            check=False,
        )
        assert done.returncode == code, done.stderr
        wait_until(lambda: not compiler.alive())
    finally:
        compiler.end()
    if code != -signal.SIGKILL:
        assert done.report["summary"]["graph_calls"] == 3
        assert done.report["ops"]["status"] == "unknown"
        assert done.report["ops"]["note_code"] == notes.OPS_UNKNOWN
        assert done.report["ops"]["note"] == "no op meter: it was still being built"
        assert "it was still being built" in " ".join(done.stderr.split())
        assert not any("lost" in note for note in done.report["notes"])


@pytest.mark.full
def test_a_lock_that_is_held(run_forked: RunProgram, tmp_path: Path) -> None:
    folder = tmp_path / "instrumented_backend"
    folder.mkdir(mode=0o700)
    with FileLock(folder / f"op_meter-{build._OP_METER.key}.lock"):
        done = run_forked(
            PROGRAM.format(patience=0.2, ready=str(tmp_path), ending=""),
            env={"XDG_CACHE_HOME": str(tmp_path)},
        )
    assert done.report["ops"]["note"] == "no op meter: it was still being built"


@pytest.mark.full
def test_a_folder_that_others_can_write(run_forked: RunProgram, tmp_path: Path) -> None:
    """What is in it is neither loaded nor changed; the program has its figures all the same."""
    folder = tmp_path / "instrumented_backend"
    folder.mkdir()
    folder.chmod(0o777)
    name = f"op_meter-{build._OP_METER.key}"
    (folder / f"{name}.so").write_bytes((cache.cache_folder() / f"{name}.so").read_bytes())
    done = run_forked(
        PROGRAM.format(patience=600, ready=str(tmp_path), ending=""),
        env={"XDG_CACHE_HOME": str(tmp_path)},
    )
    assert done.report["ops"]["status"] != "unknown"
    assert done.report["note_codes"].count(notes.NOT_KEPT) >= 1
    assert [path.name for path in folder.iterdir()] == [f"{name}.so"]
