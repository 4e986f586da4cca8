"""CUDA graphs of operators, and their times."""

import os
import subprocess
import sys
import textwrap

import torch
from opbench import peak
from opbench.timing import in_cuda_graph, time_all


def test_replay_does_what_the_function_does() -> None:
    x = torch.randn(1000, device="cuda")
    replay = in_cuda_graph(lambda: x * 2)
    x.fill_(3.0)
    result = replay()
    torch.cuda.synchronize()
    assert (result == 6).all()


def test_what_cannot_be_captured_raises() -> None:
    """In a process of its own: a recording that failed may leave its process in disorder."""
    program = """
        import torch
        from opbench.timing import in_cuda_graph
        x = torch.randn(10, device="cuda")
        try:
            in_cuda_graph(lambda: x.sum().item())
        except RuntimeError as error:
            print("refused")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.stdout == "refused\n", done.stderr


def test_each_function_has_its_times() -> None:
    x = torch.randn(1000, device="cuda")
    found = time_all({"double": lambda: x * 2, "sum": x.sum}, repeats=1, device="cuda")
    for timing in found.values():
        assert timing.low_us is not None and timing.high_us is not None
        assert timing.low_us <= timing.median_us <= timing.high_us


def test_peak_of_a_gpu() -> None:
    found = peak.measure("cuda", torch.float16)
    assert found.gb_per_s > 0
    assert found.gflop_per_s is not None and found.gflop_per_s > 0
