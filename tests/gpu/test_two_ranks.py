"""Jobs of two processes on two GPUs."""

import pytest
import torch
from programs import RunProgram
from ranks import check_whole, run


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
    assert [report["run"]["rank"] for report in done.reports] == [0]
