"""`try` with programs that compile: steps that are found, changes that are made."""

import json
import signal
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from programs import TOOL, RunProgram
from waiting import wait_until

from instrumented_backend.commands import cli
from instrumented_backend.trials import compare

TRAINING = """
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1000)
    run, x = torch.compile(model), torch.ones(2, 8)
    for step in range(100_000):
        loss = run(x).square().mean()
        loss.backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        if step % 5 == 0:
            print(f"step {step} loss {loss.item():.6f}")
    open("never", "w")
"""


@pytest.fixture
def once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """One pair of runs: nothing is asked of their times. The folder where `try` is called."""
    monkeypatch.setattr(compare, "MAX_PAIRS", 1)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tried(
    source: str,
    *only: str,
    launcher: tuple[str, ...] = (),
    steps: tuple[str, ...] = ("--steps", "5"),
) -> tuple[Result, dict[str, Any]]:
    Path("train.py").write_text(textwrap.dedent(source))
    names = [part for name in only for part in ("--only", name)]
    options = ("--format", "json", *steps, "--budget", "1h")
    done = CliRunner().invoke(cli, ["try", *options, *names, *launcher, "train.py"])
    return done, json.loads(done.stdout) if done.stdout else {}


@pytest.mark.full
def test_training(once: Path) -> None:
    """A change for the optimizer, one for torch.compile, one for all of torch: each is made."""
    changes = ("compiled-optimizer", "fused-optimizer", "dynamic", "matmul-high", "eager")
    done, result = tried(TRAINING, *changes, "warm-caches")
    assert done.exit_code == 0, done.stderr
    assert (result["unit"], result["steps"]) == ("step of AdamW", 5)
    assert result["compile_s"] > 0 and result["peak_memory_bytes"] > 1e7
    trials = {trial["change"]: trial for trial in result["trials"]}
    assert set(trials) == {*changes, "warm-caches"}
    for name in changes:
        assert trials[name]["reason"] is None
        assert trials[name]["speed_up"]["pairs"] == 1
        assert trials[name]["prints"]["kind"] in ("same", "numbers differ")
        # Each with cold caches of its own; eagerly, nothing is compiled.
        assert (trials[name]["compile_s"] > 0) == (name != "eager")
    assert trials["dynamic"]["prints"]["kind"] == "same"
    assert trials["warm-caches"]["verdict"] == "at the start"
    for name in ("compiled-optimizer", "fused-optimizer"):
        assert trials[name]["bound"]["code"] == "optimizer"
    assert [path.name for path in once.iterdir()] == ["train.py"]


@pytest.mark.full
def test_a_program_without_an_optimizer_and_with_options(once: Path) -> None:
    source = """
        import torch
        run = torch.compile(lambda x: (x * 2).cos(), options={"max_autotune": False})
        x = torch.ones(64)
        while True:
            run(x)
    """
    changes = ("max-autotune-no-cudagraphs", "reduce-overhead", "fused-optimizer")
    done, result = tried(source, *changes)
    assert done.exit_code == 0, done.stderr
    assert result["unit"] == "call of <lambda>"
    assert {trial["change"]: trial["reason"] for trial in result["trials"]} == {
        "max-autotune-no-cudagraphs": None,
        "reduce-overhead": "it needs a GPU",
        "fused-optimizer": "no optimizer that it could change in it",
    }


@pytest.mark.full
def test_a_learning_rate_that_changes_in_each_step(once: Path) -> None:
    """Recompiled once, for the tensor; the program prints the numbers that it knows."""
    source = """
        import torch
        torch.manual_seed(0)
        model = torch.nn.Linear(8, 8)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.5)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.75)
        run, x = torch.compile(model), torch.ones(2, 8)
        while True:
            run(x).square().mean().backward()
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            print(optimizer.param_groups[0]["lr"])
    """
    done, result = tried(source, "compiled-optimizer")
    assert done.exit_code == 0, done.stderr
    (trial,) = result["trials"]
    assert (trial["reason"], trial["prints"]["kind"]) == (None, "same")
    assert trial["notes"] == [
        "the learning rate changes: lr=torch.tensor(...), given to the optimizer"
    ]
    assert result["notes"] == []


@pytest.mark.full
def test_ranks(once: Path) -> None:
    """Under a launcher, each rank with its own clock, and gradients that they wait for."""
    source = """
        import torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel
        dist.init_process_group("gloo")
        model = DistributedDataParallel(torch.nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        run, x = torch.compile(model), torch.ones(2, 8)
        while True:
            run(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    """
    launcher = ("python", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    done, result = tried(source, "eager", launcher=launcher, steps=())
    assert done.exit_code == 0, done.stderr
    assert result["unit"] == "step of SGD" and result["steps"] >= 5
    (trial,) = result["trials"]
    assert (trial["reason"], trial["speed_up"]["pairs"]) == (None, 1)


def test_a_program_that_asks_for_input(once: Path) -> None:
    done, result = tried("import torch\ninput('name? ')\n")
    assert done.exit_code == 1 and result == {}
    assert done.stderr.splitlines()[0] == (
        "instrumented-backend: the program as it is: EOFError: EOF when reading a line"
    )


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_what_ends_it_ends_the_runs(
    run_program: RunProgram, tmp_path: Path, sent: signal.Signals, code: int
) -> None:
    source = f"""
        import os, time
        with open({str(tmp_path / "pid")!r} + ".new", "w") as file:
            file.write(str(os.getpid()))
        os.rename({str(tmp_path / "pid")!r} + ".new", {str(tmp_path / "pid")!r})
        time.sleep(600)
    """

    def interrupt(process: "subprocess.Popen[str]") -> None:
        wait_until((tmp_path / "pid").exists)
        process.send_signal(sent)

    command = (*TOOL, "try", "{script}")
    folder = tmp_path / "temporary"
    folder.mkdir()
    done = run_program(
        source, command=command, check=False, interact=interrupt, env={"TMPDIR": str(folder)}
    )
    assert list(folder.iterdir()) == []
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    status = Path(f"/proc/{(tmp_path / 'pid').read_text()}/status")
    wait_until(lambda: not status.exists() or "State:\tZ" in status.read_text())
