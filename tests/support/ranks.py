"""A job of two processes under torchrun."""

import sys
from typing import Any

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


RECOMPILES = """
import os, signal, sys
sys.path.insert(0, {repository!r})
import torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group({communication!r})
rank = dist.get_rank()
device = torch.device({device!r}, int(os.environ["LOCAL_RANK"])) if {device!r} == "cuda" else "cpu"
@torch.compile(backend="instrumented", dynamic=False)
def step(x):
    return (x.sin() + 1).sum()
for number in range(1, 24):
    x = torch.ones(5 if rank == 1 and number == 20 else 4, device=device)
    dist.all_reduce(step(x))
    if number == 22:
        {trouble}
dist.destroy_process_group()
"""


def run_recompiling(
    run_program: RunProgram,
    trouble: str = "pass",
    device: str = "cpu",
    communication: str = "gloo",
    **env: str | None,
) -> Finished:
    """Rank 1 alone recompiles, in its call 20."""
    program = RECOMPILES.format(
        repository=str(REPOSITORY), trouble=trouble, device=device, communication=communication
    )
    return run_program(program, command=TORCHRUN, check=False, timeout=600, env=env)


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
    return run_program(program, command=TORCHRUN, check=False, timeout=600)


def check_whole(done: Finished, device: str) -> None:
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("instrumented: 1 graph, 4 calls (+4 backward)") == 1
    assert [report["run"]["rank"] for report in done.reports] == [0, 1]
    for report in done.reports:
        assert report["run"]["device"] != []
        counts: dict[str, Any] = report["summary"]
        assert (counts["graphs"], counts["graph_calls"], counts["backward_calls"]) == (1, 4, 4)
        assert "lost" not in report["note_codes"], report["notes"]
