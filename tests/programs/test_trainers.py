"""Trainers as people use them, unedited, under `run`: DDP, FSDP2, DataLoaders, and theirs."""

import os
import sys

import pytest
from programs import RunProgram
from trainers import (
    ACCELERATE,
    DDP,
    FSDP2,
    HUGGING_FACE,
    LIGHTNING,
    REGIONS,
    RUN,
    calls_of,
    counted,
    in_ranks,
    needs,
    one_process,
    torchrun,
    two_processes,
)

pytestmark = pytest.mark.full
TORCHRUN = torchrun(2)


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


@needs("transformers", "accelerate")
def test_hugging_faces_trainer(run_program: RunProgram) -> None:
    one_process(run_program, HUGGING_FACE)


@needs("accelerate")
def test_accelerate(run_program: RunProgram) -> None:
    one_process(run_program, ACCELERATE)


@needs("lightning")
def test_lightning(run_program: RunProgram) -> None:
    one_process(run_program, LIGHTNING)


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
    rank, steps = 0, step
""",
    )


@needs("transformers", "accelerate")
def test_hugging_faces_trainer_on_two_ranks(run_program: RunProgram) -> None:
    two_processes(run_program, HUGGING_FACE, TORCHRUN)


@needs("accelerate")
def test_accelerate_on_two_ranks(run_program: RunProgram) -> None:
    two_processes(run_program, ACCELERATE, TORCHRUN)


@needs("lightning")
def test_lightning_on_two_ranks(run_program: RunProgram) -> None:
    """It starts the second process itself."""
    two_processes(run_program, LIGHTNING, ("{script}",))


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
    # Its own word for it, as a shell finds it.
    launch = ("accelerate", "launch", "--cpu", "--num_processes=1", "{script}")
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    done = run_program(source, command=(*RUN, *launch), timeout=600, env={"PATH": path})
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
