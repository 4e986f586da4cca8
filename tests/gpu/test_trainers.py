"""Trainers on GPUs, unedited, under `run`: calls are those that the program counts itself."""

import pytest
import torch
from programs import Finished, RunProgram
from trainers import (
    ACCELERATE,
    DDP,
    FSDP2,
    HUGGING_FACE,
    LIGHTNING,
    RUN,
    calls_of,
    counted,
    in_ranks,
    needs,
    one_process,
    torchrun,
    two_processes,
)

TRAINERS = {
    "Hugging Face": (HUGGING_FACE, ("transformers", "accelerate")),
    "accelerate": (ACCELERATE, ("accelerate",)),
    "Lightning": (LIGHTNING, ("lightning",)),
}
LAUNCH = ("accelerate", "launch", "--multi_gpu", "--num_processes=2", "{script}")
ON_TWO = {
    "Hugging Face": torchrun(2),
    "accelerate": LAUNCH,
    "Lightning": ("{script}",),  # starts the second process itself
}
two_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=needs(*TRAINERS[name][1])) for name in TRAINERS]
)
def test_a_trainer(name: str, run_program: RunProgram) -> None:
    done = one_process(run_program, TRAINERS[name][0], cpu=False)
    assert done.report["run"]["device"] != []
    assert any(kernel["language"] == "triton" for kernel in done.report["kernels"])


def check(done: Finished, ranks: int) -> None:
    """Each rank's graphs were called once in each of its steps."""
    assert set(calls_of(done)) == set(counted(done)) == set(range(ranks))
    for report in done.reports:
        steps = counted(done)[report["run"]["rank"]]
        listed = [graph for graph in report["graphs"] if graph["ops"]]
        assert listed and all(graph["calls"] % steps == 0 for graph in listed)
        assert report["run"]["world_size"] == ranks


@pytest.mark.parametrize("wrap", [DDP, FSDP2], ids=["DDP", "FSDP2"])
def test_a_world_of_one(wrap: str, run_program: RunProgram) -> None:
    check(in_ranks(run_program, wrap, (*RUN, *torchrun(1)), "cuda", "nccl"), ranks=1)


@two_gpus
@pytest.mark.parametrize("wrap", [DDP, FSDP2], ids=["DDP", "FSDP2"])
def test_two_ranks(wrap: str, run_program: RunProgram) -> None:
    check(in_ranks(run_program, wrap, (*RUN, *torchrun(2)), "cuda", "nccl"), ranks=2)


@two_gpus
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=needs(*TRAINERS[name][1])) for name in TRAINERS]
)
def test_a_trainer_on_two_gpus(name: str, run_program: RunProgram) -> None:
    done = two_processes(run_program, TRAINERS[name][0], ON_TWO[name], cpu=False)
    for report in done.reports:
        assert any(kernel["language"] == "triton" for kernel in report["kernels"])
