"""The drop-in for torch._dynamo.profiler, on compiled programs."""

import threading
from typing import Any

import pytest
import torch

from instrumented_backend.profiling import (
    Profiler,
    ProfileResult,
    fx_insert_profiling,
)

first, second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)


def two_graphs(x: torch.Tensor) -> torch.Tensor:
    """Eight ops: linear, relu, mul, add; linear, softmax, mul, sum."""
    x = first(x).relu() * 2 + 1
    torch._dynamo.graph_break()
    return (second(x).softmax(-1) * 3).sum()


def ten_steps(backend: Any, training: bool) -> ProfileResult:
    torch._dynamo.reset()
    compiled = torch.compile(two_graphs, backend=backend)
    x = torch.randn(4, 8)

    def step() -> None:
        with torch.set_grad_enabled(training):
            loss = compiled(x)
        if training:
            loss.backward()

    step()
    profiler = Profiler()
    Profiler.unique_graphs = 2
    if backend == "instrumented":
        Profiler.unique_graphs = 0
    with profiler.prof:
        for _ in range(10):
            step()
    return profiler.results()


@pytest.mark.parametrize("backend", [fx_insert_profiling, "instrumented"], ids=["fx", "inductor"])
def test_everything_captured(fresh: None, backend: Any) -> None:
    result = ten_steps(backend, training=False)
    assert (result.unique_graphs, result.captured.graphs) == (2, 20)
    assert (result.captured.operators, result.total.operators) == (80, 80)
    assert str(result) == " 2 graphs 20 graph calls   80/  80 = 100% ops 100% time"
    assert result.tocsv() == [2, 20, 80, 80, 1.0, 1.0]
    assert result.captured.fusions == 60


def test_training_op_by_op(fresh: None) -> None:
    """Backward runs eagerly: 80 of 80 + 10 x (ones_like and the nodes), AccumulateGrad included.

    Nodes: sum, mul, softmax, addmm, t; add, mul, relu, addmm, t; four parameters.
    """
    result = ten_steps(fx_insert_profiling, training=True)
    assert (result.captured.operators, result.total.operators) == (80, 80 + 10 * (1 + 10 + 4))
    assert 0 <= result.percent().microseconds <= 1


@pytest.mark.full
def test_training_by_inductor(fresh: None) -> None:
    """Backward is captured, too: of each step, all but ones_like and four AccumulateGrads."""
    result = ten_steps("instrumented", training=True)
    assert (result.captured.operators, result.total.operators) == (180, 180 + 10 * (1 + 4))


def test_threads_do_not_hide_each_other(fresh: None) -> None:
    compiled = torch.compile(lambda x: x.sin() * 2, backend=fx_insert_profiling)
    x = torch.randn(4)
    compiled(x)

    def work() -> None:
        for _ in range(100):
            compiled(x)
            x.add(1)

    profiler = Profiler()
    with profiler.prof:
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        work()
        for thread in threads:
            thread.join()
    result = profiler.results()
    # torch.profiler records the threads that it was started on, and those that it started.
    runs = result.captured.graphs // 100
    assert (result.captured.operators, result.total.operators) == (200 * runs, 300 * runs)
    assert runs >= 1
