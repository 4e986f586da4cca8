"""PyTorch's own operators, compiled by us and by Inductor: the same bits, or the same error.

``pytest -m dropin`` runs all of them, forward and backward, some 690 with their variants, in half
an hour; a fixed tenth of them runs with the other tests. `dropin.py` has what is compared, and the
list of operators that are left out.
"""

import json
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest
from paths import SUPPORT

PROGRAM = SUPPORT / "dropin.py"
TENTHS = [0, *(pytest.param(tenth, marks=pytest.mark.full) for tenth in range(1, 10))]

Outcomes = list[dict[str, Any]]


def outcomes(*arguments: str) -> Outcomes:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *arguments], stdout=subprocess.PIPE, text=True
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, f"{lines[-1]['operator']} ended the process: {done.returncode}"
    return [line for line in lines if "started" not in line]


@pytest.mark.full
@pytest.mark.parametrize("tenth", TENTHS)
def test_a_tenth_of_the_operators(tenth: int) -> None:
    seen = outcomes(str(tenth))
    counts = Counter(
        operators=len(seen),
        with_backward=sum(outcome["backward"] for outcome in seen),
        in_graphs=sum(bool(outcome["graphs"]) for outcome in seen),
        same_error=sum(bool(outcome["error"]) for outcome in seen),
    )
    print(f"tenth {tenth}: {dict(counts)}")
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
sys.path.insert(0, {str(PROGRAM.parent)!r})
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
