"""CUDA graphs of operators, and their times."""

import os
import statistics
import subprocess
import sys
import textwrap

import pytest
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
        timeout=120,
    )
    assert done.stdout == "refused\n", done.stderr


def test_times_are_do_benchs() -> None:
    """A copy and a product that take 0.1 ms and more: a graph's launch is some µs of that.

    In turns of the same length: a product that runs for long slows its own clock down.
    """
    from triton.testing import do_bench

    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.float16) for _ in range(2))
    functions = {"copy": a.clone, "product": lambda: a @ b}
    ours: dict[str, list[float]] = {name: [] for name in functions}
    theirs: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(5):
        for name, timing in time_all(functions, repeats=1, device="cuda").items():
            ours[name].append(timing.median_us)
        for name, function in functions.items():
            ms = do_bench(function, warmup=2, rep=10, return_mode="median")
            theirs[name].append(1e3 * ms)
    for name in functions:
        expected = statistics.median(theirs[name])
        assert statistics.median(ours[name]) == pytest.approx(expected, rel=0.05), name


def test_peak_of_a_gpu() -> None:
    found = peak.measure("cuda", torch.float16)
    memory = torch.cuda.get_device_properties(0)
    # Twice the clock, times the bus, is the data sheet's figure; a copy gets most of it.
    if getattr(memory, "memory_clock_rate", None):
        sheet = 2 * memory.memory_clock_rate * 1e3 * memory.memory_bus_width / 8 / 1e9
        assert 0.7 * sheet < found.gb_per_s < sheet
    assert found.gb_per_s > 100
    assert found.gflop_per_s is not None and found.gflop_per_s > 1000
