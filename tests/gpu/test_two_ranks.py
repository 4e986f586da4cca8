"""Jobs of two processes on two GPUs."""

import re
import subprocess
from pathlib import Path

import pytest
import torch
from programs import TOOL, RunProgram
from ranks import check_whole, run, run_recompiling


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_two_gpus(run_program: RunProgram) -> None:
    ours = run(run_program, "instrumented", device="cuda", communication="nccl")
    check_whole(ours, "cuda")
    theirs = run(run_program, "inductor", device="cuda", communication="nccl")
    assert (ours.returncode, ours.stdout) == (theirs.returncode, theirs.stdout)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_one_of_two_gpus_dies(run_program: RunProgram) -> None:
    done = run(
        run_program,
        "instrumented",
        "if rank == 1: os.kill(os.getpid(), signal.SIGKILL)",
        device="cuda",
        communication="nccl",
    )
    assert done.returncode == 1
    # Of rank 1 there may be what it had seen before.
    ended = [report for report in done.reports if report["run"]["status"] != "running"]
    assert [report["run"]["rank"] for report in ended] == [0]


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_recompile_on_one_of_two_gpus(run_program: RunProgram, tmp_path: Path) -> None:
    """NCCL's own flight recorder is not read: how long rank 0 waited is by the compilation."""
    done = run_recompiling(run_program, device="cuda", communication="nccl")
    assert done.returncode == 0, done.stderr
    command = [*TOOL, "show", str(tmp_path / "reports0")]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    said = " ".join(re.sub(r"\([^ ]*/(program\d+\.py:\d+)\)", r"(\1)", shown).split())
    assert "ranks first differ: rank 1 recompiled step (program0.py:" in said
    assert "in call 20, rank 0 did not; guard: size of x in dimension 0: 4 → 5;" in said
