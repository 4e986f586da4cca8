"""Jobs of two processes, under torchrun: one summary, a report file a rank, and nobody hangs."""

import signal
import sys
from typing import Any

import pytest
import torch
from paths import REPOSITORY
from programs import Finished, RunProgram

TORCHRUN = (
    *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"),
    "{script}",
)

PROGRAM = """
import os, signal, sys, time
sys.path.insert(0, {repository!r})
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
torch.set_num_threads(1)
BACKEND = {backend!r}
if BACKEND == "instrumented":
    import instrumented_backend
device = torch.device({device!r}, int(os.environ["LOCAL_RANK"])) if {device!r} == "cuda" else "cpu"
dist.init_process_group({communication!r})
rank = dist.get_rank()
torch.manual_seed(0)
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)
    def forward(self, x):
        return self.last(self.first(x).relu())
model = DistributedDataParallel(Model().to(device))
step = torch.compile(model, backend=BACKEND)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number in range(4):
    optimizer.zero_grad()
    loss = step(torch.full((2, 8), 1.0 + rank, device=device)).sum()
    if number == 2:
        {trouble}
    loss.backward()
    optimizer.step()
if rank == 0:
    print([round(p.sum().item(), 4) for p in model.parameters()], flush=True)
dist.destroy_process_group()
"""


def run(
    run_program: RunProgram,
    backend: str,
    trouble: str = "pass",
    device: str = "cpu",
    communication: str = "gloo",
) -> Finished:
    program = PROGRAM.format(
        repository=str(REPOSITORY),
        backend=backend,
        trouble=trouble,
        device=device,
        communication=communication,
    )
    return run_program(program, command=TORCHRUN, check=False, timeout=150)


def check_whole(done: Finished, device: str) -> None:
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("instrumented: 1 graph, 4 calls (+4 backward)") == 1
    assert [report["run"]["rank"] for report in done.reports] == [0, 1]
    for report in done.reports:
        assert report["run"]["device"] != []
        counts: dict[str, Any] = report["summary"]
        assert (counts["graphs"], counts["graph_calls"], counts["backward_calls"]) == (1, 4, 4)
        assert not [note for note in report["notes"] if "lost" in note]


def test_two_ranks(run_program: RunProgram) -> None:
    ours = run(run_program, "instrumented")
    check_whole(ours, "cpu")
    theirs = run(run_program, "inductor")
    assert (ours.returncode, ours.stdout) == (theirs.returncode, theirs.stdout)


DEATHS = {
    # What rank 1 does, and who has a report file then.
    "an exception": ("raise ValueError('rank 1')", [0, 1]),
    "os._exit": ("os._exit(5)", [0]),
    "SIGKILL": ("os.kill(os.getpid(), signal.SIGKILL)", [0]),
}


@pytest.mark.parametrize(
    "death",
    ["SIGKILL", *(pytest.param(name, marks=pytest.mark.full) for name in list(DEATHS)[:2])],
)
def test_one_rank_dies(run_program: RunProgram, death: str) -> None:
    """Rank 0 is left in a collective: it fails there, or torchrun ends it, and the job with 1."""
    trouble, reporting = DEATHS[death]
    done = run(run_program, "instrumented", f"if rank == 1: {trouble}")
    assert done.returncode == 1
    assert done.stdout == ""
    assert [report["run"]["rank"] for report in done.reports] == reporting
    assert done.stderr.count("instrumented: 1 graph") == 1
    if death == "SIGKILL":
        assert f"exitcode  : {-signal.SIGKILL}" in done.stderr


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_two_gpus(run_program: RunProgram) -> None:
    ours = run(run_program, "instrumented", device="cuda", communication="nccl")
    check_whole(ours, "cuda")
    theirs = run(run_program, "inductor", device="cuda", communication="nccl")
    assert (ours.returncode, ours.stdout) == (theirs.returncode, theirs.stdout)


@pytest.mark.gpu
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
