"""Trainers as people use them, unedited, under `run`: DDP, FSDP2, DataLoaders, and theirs."""

import importlib.util
import sys

import pytest
from programs import TOOL, Finished, RunProgram

pytestmark = pytest.mark.full
RUN = (*TOOL, "run")
TORCHRUN = (
    *(sys.executable, "-m", "torch.distributed.run"),
    *("--standalone", "--nproc-per-node=2", "{script}"),
)


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


RANKS = """
    import torch, torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)
        def forward(self, x):
            return self.last(self.first(x).relu())
    model = Model()
    {wrap}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(1, 4 + rank):
        loss = model(torch.full((2, 8), 1.0 + rank)).sum() if {alike} or number < 4 else None
        if loss is not None:
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            steps = number
    print(f"rank {{rank}}: {{steps}}\\n", end="", flush=True)
    dist.destroy_process_group()
"""
DDP = """
    from torch.nn.parallel import DistributedDataParallel
    model = torch.compile(DistributedDataParallel(model))"""
FSDP2 = """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (2,))
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


def in_ranks(run_program: RunProgram, wrap: str, command: tuple[str, ...]) -> Finished:
    return run_program(RANKS.format(wrap=wrap, alike=False), command=command, timeout=600)


def test_ddp_under_torchrun(run_program: RunProgram) -> None:
    done = in_ranks(run_program, DDP, (*RUN, *TORCHRUN))
    assert calls_of(done) == {rank: (steps, steps) for rank, steps in counted(done).items()}
    assert set(calls_of(done)) == {0, 1}
    assert done.stderr.count("instrumented: 2 ranks of ") == 1
    assert done.stderr.count("instrumented: 1 graph") == 1


def test_adoption_alone_reaches_the_ranks(run_program: RunProgram) -> None:
    """The launcher's own word for a command: torchrun, as it is on the PATH."""
    done = in_ranks(run_program, DDP, (*RUN, "--", *TORCHRUN))
    assert calls_of(done) == {rank: (steps, steps) for rank, steps in counted(done).items()}


def test_fsdp2_under_torchrun(run_program: RunProgram) -> None:
    """Its hooks are not compiled: each module that they are on is a graph, or several."""
    done = in_ranks(run_program, FSDP2, (*RUN, *TORCHRUN))
    assert set(calls_of(done)) == set(counted(done)) == {0, 1}
    for report in done.reports:
        steps = counted(done)[report["run"]["rank"]]
        listed = [graph for graph in report["graphs"] if graph["ops"]]
        assert listed and all(graph["calls"] % steps == 0 for graph in listed)


def test_regional_compilation_in_ddp(run_program: RunProgram) -> None:
    done = in_ranks(run_program, REGIONS, (*RUN, *TORCHRUN))
    for rank, (calls, _) in calls_of(done).items():
        assert calls % counted(done)[rank] == 0
    assert set(calls_of(done)) == {0, 1}


def test_a_data_loaders_workers(run_program: RunProgram) -> None:
    """They compile nothing and have no report; what they prepare is trained on as ever."""
    source = """
        import torch
        class Data(torch.utils.data.Dataset):
            def __len__(self):
                return 8
            def __getitem__(self, index):
                return torch.full((2,), float(index))
        model = torch.compile(torch.nn.Linear(2, 1))
        calls = 0
        for batch in torch.utils.data.DataLoader(Data(), 4, num_workers=2):
            model(batch).sum().backward()
            calls += 1
        print("rank 0:", calls)
    """
    done = run_program(source, command=(*RUN, "{script}"))
    assert calls_of(done) == {0: (2, 2)} and counted(done) == {0: 2}
    assert done.report["run"]["worker"] is None


def test_a_spawned_worker_has_its_name(run_program: RunProgram) -> None:
    source = """
        import multiprocessing, torch
        def work():
            torch.compile(lambda x: x + 1)(torch.ones(2))
        if __name__ == "__main__":
            context = multiprocessing.get_context("spawn")
            worker = context.Process(target=work, name="EngineCore_0")
            worker.start()
            worker.join()
    """
    done = run_program(source, command=(*RUN, "{script}"))
    assert done.report["run"]["worker"] == "EngineCore_0"
    assert done.report["summary"]["graph_calls"] == 1


# --- Trainers of other packages -----------------------------------------------------------------


def needs(*packages: str) -> pytest.MarkDecorator:
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


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


def one_process(run_program: RunProgram, source: str) -> None:
    env: dict[str, str | None] = {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    done = run_program(COUNTING + source, command=(*RUN, "{script}"), env=env, timeout=600)
    (steps,) = counted(done).values()
    assert calls_of(done) == {0: (steps, steps)}, done.stderr


@needs("transformers", "accelerate")
def test_hugging_faces_trainer(run_program: RunProgram) -> None:
    one_process(
        run_program,
        """
    from transformers import Trainer, TrainingArguments
    arguments = TrainingArguments(
        output_dir="out", torch_compile=True, max_steps=4, per_device_train_batch_size=4,
        report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True,
    )
    trainer = Trainer(model=Model(), args=arguments, train_dataset=Data())
    trainer.train()
    print("rank 0:", trainer.state.global_step)
""",
    )


@needs("accelerate")
def test_accelerate(run_program: RunProgram) -> None:
    one_process(
        run_program,
        """
    from accelerate import Accelerator
    accelerator = Accelerator(cpu=True, dynamo_backend="inductor")
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
    print("rank 0:", steps)
""",
    )


@needs("lightning")
def test_lightning(run_program: RunProgram) -> None:
    one_process(
        run_program,
        """
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
        accelerator="cpu", devices=1, max_epochs=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )
    trainer.fit(Training(), torch.utils.data.DataLoader(Data(), 4))
    print("rank 0:", trainer.global_step)
""",
    )


@needs("timm", "torchvision")
def test_a_model_of_timm(run_program: RunProgram) -> None:
    one_process(
        run_program,
        """
    import timm
    torch.set_num_threads(1)
    model = torch.compile(timm.create_model("test_vit", pretrained=False, num_classes=2))
    for step in range(1, 3):
        model(torch.ones(1, 3, 160, 160)).sum().backward()
    print("rank 0:", step)
""",
    )


# --- Commands that start programs ---------------------------------------------------------------


@needs("accelerate")
def test_accelerate_launch(run_program: RunProgram) -> None:
    source = """
        import torch
        from accelerate import Accelerator
        accelerator = Accelerator(cpu=True)
        model = torch.compile(torch.nn.Linear(2, 1))
        for step in range(1, 4):
            model(torch.ones(4, 2)).sum().backward()
        print(f"rank {accelerator.process_index}: {step}")
    """
    launch = ("-m", "accelerate.commands.launch", "--cpu", "--num_processes=1", "{script}")
    done = run_program(source, command=(*RUN, *launch), timeout=600)
    assert calls_of(done) == {0: (3, 3)} and counted(done) == {0: 3}
    assert done.stderr.count("instrumented: 1 graph") == 1


def test_run_pytest(run_program: RunProgram) -> None:
    """A suite that compiles: its outcome and its exit code are pytest's own."""
    source = """
        import torch
        def test_it():
            add = torch.compile(lambda x: x + 1)
            for _ in range(3):
                assert add(torch.ones(2)).tolist() == [2.0, 2.0]
        def test_that_fails():
            assert False
    """
    alone = ("-c", "/dev/null")  # no settings of the folders above
    pytest_ = ("-m", "pytest", "-q", "-pno:cacheprovider", *alone, "{script}")
    done = run_program(source, command=(*RUN, *pytest_), check=False, timeout=600)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "1 failed, 1 passed" in done.stdout
    assert done.report["summary"]["graph_calls"] == 3
    assert done.stderr.count("instrumented: 1 graph, 3 calls") == 1
