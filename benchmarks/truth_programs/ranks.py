"""Training on two ranks, each on a GPU of its own, or both on the CPU.

Rank 0 is the one whose report is held against the truth. The other one is a process of plain
Inductor's, which does the same beside it (`partner`).
"""

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from truth_programs.models import Blocks, batches, forever, loss_of
from truth_programs.run import Run

RANKS = 2


MEETING = "TRUTH_MEETING"  # a folder in which ranks find each other: a file for each job
_jobs = itertools.count()


def variables(folder: str) -> list[dict[str, str]]:
    """Of each rank: as a launcher would set them, and the folder."""
    job = {MEETING: folder, "WORLD_SIZE": str(RANKS)}
    return [{**job, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(RANKS)]


def partner(name: str, device: str, few: list[int | None]) -> None:
    """The other rank: the program once for each of ``few``, as rank 0 runs it."""
    from truth_programs.catalogue import ALL

    torch.set_num_threads(1)
    for turns in few:
        torch._dynamo.reset()
        ALL[name](Run(device, "inductor", few=turns))


@contextmanager
def _job(run: Run) -> Iterator[None]:
    rank, device = int(os.environ["RANK"]), None
    if run.device == "cuda":
        device = torch.device("cuda", rank)
        torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl" if device else "gloo",
        init_method=f"file://{os.environ[MEETING]}/{next(_jobs)}",
        rank=rank,
        world_size=RANKS,
        device_id=device,
    )
    try:
        yield
    finally:
        dist.destroy_process_group()


def ddp(run: Run) -> None:
    """Gradients are averaged while the backward runs."""
    with _job(run):
        torch.manual_seed(0)
        model = DistributedDataParallel(Blocks(6, 512).to(run.device))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        _train(run, run.compile(model), optimizer)


def fsdp2(run: Run) -> None:
    """Blocks that are sharded, and compiled one by one."""
    with _job(run):
        torch.manual_seed(0)
        model = Blocks(6, 512).to(run.device)
        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
        run.compile_in_place(model.blocks)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        _train(run, model, optimizer)


def _train(run: Run, compiled: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    inputs = forever(batches(run.device, width=512))
    with run.part("optimizer's kernels"):  # or some op of the first step waits while they load,
        for parameter in compiled.parameters():  # and with them the collective under way
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        optimizer.zero_grad()
    for _ in run.times(300):
        with run.part("step"):
            loss = loss_of(run.call(compiled, next(inputs)))
            run.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            with run.spent("aten::to"):  # or this host would run ahead of the other's GPU
                loss.detach().cpu()
