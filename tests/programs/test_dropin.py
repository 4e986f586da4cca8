"""A tenth of PyTorch's own operators, compiled by us and by Inductor: the same bits."""

import json
import subprocess
import sys
from collections import Counter

import pytest
from paths import BENCHMARKS


@pytest.mark.full
def test_a_tenth_of_the_operators() -> None:
    """In another process: importing torch.testing's database changes global settings."""
    command = [sys.executable, str(BENCHMARKS / "dropin.py"), "--here", "--tenth=0"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, f"{lines[-1]['operator']} ended the process: {done.returncode}"
    seen = [line for line in lines if "started" not in line]
    counts = Counter(
        operators=len(seen),
        with_backward=sum(outcome["backward"] for outcome in seen),
        in_graphs=sum(bool(outcome["graphs"]) for outcome in seen),
        same_error=sum(bool(outcome["error"]) for outcome in seen),
    )
    print(dict(counts))
    wrong = [o for o in seen if o["differs"] or o["lost"] or o["skipped"]]
    assert not wrong
    # Not everything left to eager, nor failing in both.
    assert counts["operators"] >= 50
    assert counts["in_graphs"] >= 0.9 * counts["operators"]
    assert counts["same_error"] <= 0.05 * counts["operators"]


@pytest.mark.full
def test_a_difference_is_seen() -> None:
    """`compare` on operators that differ with the backend, or from call to call."""
    program = f"""
import sys
sys.path.insert(0, {str(BENCHMARKS)!r})
import torch
import dropin

def operator(function):
    class Operator:
        supports_autograd = True
        def supported_dtypes(self, device): return {{torch.float32}}
        supported_backward_dtypes = supported_dtypes
        def sample_inputs(self, *args, requires_grad):
            x = torch.ones(3, requires_grad=requires_grad)
            yield type("Sample", (), {{"input": x, "args": (), "kwargs": {{}}}})
        def __call__(self, x): return function(x)
    return Operator()

calls = 0
def counting(x):
    global calls
    calls += 1
    return x + calls
def raising(x):
    raise ValueError(counting(0))
for function in (counting, raising, torch.sin):
    print(dropin.compare(operator(function), ours_first=False)["differs"])
"""
    out = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True
    )
    assert out.stdout.splitlines() == ["['result']", "['error']", "[]"]
