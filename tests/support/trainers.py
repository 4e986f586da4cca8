"""Trainers as people use them, unedited: what they run, and what is known of it."""

import importlib.util
import sys

import pytest
from programs import NO_GPU, ONE_GPU, TOOL, Finished, RunProgram

RUN = (*TOOL, "run")


def torchrun(processes: int) -> tuple[str, ...]:
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone")
    return *launcher, f"--nproc-per-node={processes}", "{script}"


def calls_of(done: Finished) -> dict[int, tuple[int, int]]:
    """Forward and backward calls by rank."""
    assert all("lost" not in report["note_codes"] for report in done.reports), done.reports
    return {
        report["run"]["rank"]: (
            report["summary"]["graph_calls"],
            report["summary"]["backward_calls"],
        )
        for report in done.reports
    }


def counted(done: Finished) -> dict[int, int]:
    """What the program says itself: ``rank R: N``, a line for each rank."""
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("rank ")]
    return {int(words[1].strip(":")): int(words[2]) for words in lines}


def needs(*packages: str) -> pytest.MarkDecorator:
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


RANKS = """
    import os, torch, torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group("{communication}")
    rank = dist.get_rank()
    torch.manual_seed(0)
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)
        def forward(self, x):
            return self.last(self.first(x).relu())
    device = torch.device("{device}")
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    model = Model().to(device)
    {wrap}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for steps in range(1, 4):
        model(torch.full((2, 8), 1.0 + rank, device=device)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"rank {{rank}}: {{steps}}\\n", end="", flush=True)
    dist.destroy_process_group()
"""
DDP = """
    from torch.nn.parallel import DistributedDataParallel
    model = torch.compile(DistributedDataParallel(model))"""
FSDP2 = """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for part in (model.first, model.last):
        fully_shard(part, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.compile()"""
REGIONS = """
    class Part(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner
        def forward(self, x):
            return self.inner(x)
    model.first, model.last = Part(model.first), Part(model.last)
    for part in (model.first, model.last):
        part.compile()
    from torch.nn.parallel import DistributedDataParallel
    model = DistributedDataParallel(model)"""


def in_ranks(
    run_program: RunProgram,
    wrap: str,
    command: tuple[str, ...],
    device: str = "cpu",
    communication: str = "gloo",
) -> Finished:
    source = RANKS.format(wrap=wrap, device=device, communication=communication)
    return run_program(source, command=command, timeout=600)


COUNTING = """
    import torch
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)
        def forward(self, x, labels=None):
            loss = self.last(self.first(x).relu()).square().mean()
            return {"loss": loss}
    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 16
        def __getitem__(self, index):
            return {"x": torch.full((8,), float(index)), "labels": torch.zeros(1)}
"""
HUGGING_FACE = """
    from transformers import Trainer, TrainingArguments
    arguments = TrainingArguments(
        output_dir="out", torch_compile=True, max_steps=4, per_device_train_batch_size=4,
        report_to=[], save_strategy="no", use_cpu={cpu}, disable_tqdm=True,
    )
    trainer = Trainer(model=Model(), args=arguments, train_dataset=Data())
    trainer.train()
    rank, steps = trainer.args.process_index, trainer.state.global_step
"""
ACCELERATE = """
    from accelerate import Accelerator
    accelerator = Accelerator(cpu={cpu}, dynamo_backend="inductor")
    loader = torch.utils.data.DataLoader(Data(), 4)
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    steps = 0
    for batch in loader:
        accelerator.backward(model(batch["x"])["loss"])
        optimizer.step()
        optimizer.zero_grad()
        steps += 1
    rank = accelerator.process_index
"""
LIGHTNING = """
    import lightning
    class Training(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = torch.compile(Model())
        def training_step(self, batch, index):
            return self.model(batch["x"])["loss"]
        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)
    trainer = lightning.Trainer(
        accelerator="cpu" if {cpu} else "gpu", devices={devices}, max_epochs=1, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )
    trainer.fit(Training(), torch.utils.data.DataLoader(Data(), 4))
    rank, steps = trainer.global_rank, trainer.global_step
"""
# In one write: ranks share the pipe.
SAYING = """
    print(f"rank {rank}: {steps}\\n", end="", flush=True)
"""


def one_process(run_program: RunProgram, source: str, cpu: bool = True) -> Finished:
    env: dict[str, str | None] = {"HF_HUB_OFFLINE": "1", **(NO_GPU if cpu else ONE_GPU)}
    done = _trained(run_program, source, (*RUN, "{script}"), cpu, devices=1, env=env)
    assert set(counted(done)) == {0}, done.stderr
    return done


def two_processes(
    run_program: RunProgram, source: str, command: tuple[str, ...], cpu: bool = True
) -> Finished:
    """``command`` starts both, or the trainer itself does."""
    env: dict[str, str | None] = {"HF_HUB_OFFLINE": "1", **(NO_GPU if cpu else {})}
    done = _trained(run_program, source, (*RUN, *command), cpu, devices=2, env=env)
    assert set(counted(done)) == {0, 1}, done.stderr
    assert all(report["run"]["world_size"] == 2 for report in done.reports)
    return done


def _trained(
    run_program: RunProgram,
    source: str,
    command: tuple[str, ...],
    cpu: bool,
    devices: int,
    env: dict[str, str | None],
) -> Finished:
    """Each rank called its graph forward and backward once in each step that it counted."""
    text = (COUNTING + source + SAYING).replace("{cpu}", str(cpu))
    text = text.replace("{devices}", str(devices))
    done = run_program(text, command=command, env=env, timeout=600)
    assert calls_of(done) == {rank: (n, n) for rank, n in counted(done).items()}, done.stderr
    return done
