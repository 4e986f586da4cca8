"""Advice followed to the letter: the cause is gone, and the program does what it did."""

import json

import pytest
from paths import SUPPORT
from programs import RunProgram


@pytest.mark.full
def test_advice_that_is_followed(run_forked: RunProgram) -> None:
    source = f"""
        import runpy, sys
        sys.path.insert(0, {str(SUPPORT)!r})
        runpy.run_path({str(SUPPORT / "advised.py")!r}, run_name="__main__")
    """
    done = run_forked(source, env={"INSTRUMENTED_TABLES": "none"}, timeout=900)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) >= 20
    for row in rows:
        assert any(row["expected"] in text for text in row["advice"]), row
        assert row["same"] and row["before"], row
        # What is usual stays as it is.
        usual = row["expected"] == "one graph for each is usual"
        assert row["after"] == (row["before"] if usual else []), row


OPTIMIZER = """\
import torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.ones(4, 4)
def step():
    loss = model(x).mm(x)
    optimizer.step()
    return loss.mm(x)
torch.compile(step, backend="instrumented")()
"""


@pytest.mark.full
def test_a_break_that_torch_asks_for_is_torchs(run_forked: RunProgram) -> None:
    """Not "User-inserted graph break", and no step to take."""
    done = run_forked(
        OPTIMIZER,
        env={"INSTRUMENTED_TABLES": "summary,next,breaks"},
        timeout=300,
    )
    torchs = [record for record in done.report["breaks"] if record["whose"] == "torch"]
    assert any("torch breaks the graph here itself" in record["reason"] for record in torchs)
    assert "User-inserted" not in done.stderr
    assert not [step for step in done.report["next_steps"] if step["code"] == "break"]
    assert "next: start with" not in done.stderr
