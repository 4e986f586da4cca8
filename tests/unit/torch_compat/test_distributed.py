"""The job that the process is a rank of, by what launchers set."""

import sys

import pytest

from instrumented_backend.torch_compat import distributed
from instrumented_backend.torch_compat.distributed import Group

MASTER = {"MASTER_ADDR": "node0", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(
    ("environ", "job"),
    [
        ({}, None),
        ({"TORCHELASTIC_RUN_ID": "5a", **MASTER}, "TORCHELASTIC_RUN_ID=5a"),
        # torchrun without --rdzv-id: the same for all.
        ({"TORCHELASTIC_RUN_ID": "none", **MASTER}, "MASTER_ADDR=node0:29500"),
        (
            {"SLURM_JOB_ID": "17", "SLURM_STEP_ID": "2", **MASTER},
            "SLURM_JOB_ID=17 SLURM_STEP_ID=2",
        ),
        # One srun a node, each with a torchrun: steps differ, and the run is one.
        (
            {"SLURM_JOB_ID": "17", "SLURM_STEP_ID": "2", "TORCHELASTIC_RUN_ID": "5a"},
            "SLURM_JOB_ID=17 TORCHELASTIC_RUN_ID=5a",
        ),
        ({"PBS_JOBID": "9.server"}, "PBS_JOBID=9.server"),
        ({"MASTER_ADDR": "node0"}, None),
    ],
)
def test_job(environ: dict[str, str], job: str | None) -> None:
    assert distributed.job_id(environ) == job


@pytest.mark.parametrize(
    ("environ", "group"),
    [
        ({}, None),
        ({"RANK": "3", "WORLD_SIZE": "8"}, Group(3, 8)),
        ({"RANK": "3"}, None),
        ({"RANK": "-1", "WORLD_SIZE": "8"}, None),
    ],
)
def test_group_of_environment(environ: dict[str, str], group: Group | None) -> None:
    assert distributed.group_of_environment(environ) == group


def test_restarts() -> None:
    assert distributed.restarts({}) is None
    assert distributed.restarts({"TORCHELASTIC_RESTART_COUNT": "2"}) == 2


def test_nothing_of_torch_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch.distributed", "torch._C._distributed_c10d"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert distributed.group() is None
    assert distributed.collectives() == []
