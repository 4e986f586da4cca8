"""Regions and call counts."""

import collections
import threading
from typing import Any

import pytest
import torch
from profiled_steps import profiled_steps

import instrumented_backend
from instrumented_backend.observe.graphs.calls import CallCounter
from instrumented_backend.observe.graphs.graph import count_ops


def two_layers(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() + 1).relu() * 2


def test_a_counter_is_exact_and_reading_changes_nothing() -> None:
    counter = CallCounter()
    assert [counter.value, counter.value] == [0, 0]
    for _ in range(5):
        next(counter.numbers)
    assert [counter.value, counter.value] == [5, 5]
    counter.reset()
    assert [counter.value, counter.value] == [0, 0]
    next(counter.numbers)
    assert counter.value == 1


def test_two_threads_count_exactly(fresh: None) -> None:
    compiled = torch.compile(two_layers, backend="instrumented")
    x = torch.randn(8)
    compiled(x)

    def call() -> None:
        for _ in range(10_000):
            compiled(x)

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [graph.calls for graph in instrumented_backend.report().graphs] == [20_001]


def test_forward_and_backward_counts(fresh: None) -> None:
    compiled = torch.compile(two_layers, backend="instrumented")
    x = torch.randn(8, requires_grad=True)
    for _ in range(7):
        compiled(x).sum().backward()
    with torch.no_grad():
        for _ in range(3):
            compiled(x)
    trained, inferred = instrumented_backend.report().graphs
    assert (trained.calls, trained.backward_calls) == (7, 7)
    assert (inferred.calls, inferred.backward_calls) == (3, 0)


def test_a_backward_on_another_thread_is_counted(fresh: None) -> None:
    compiled = torch.compile(two_layers, backend="instrumented")
    x = torch.randn(8, requires_grad=True)
    losses = [compiled(x).sum() for _ in range(3)]
    thread = threading.Thread(target=lambda: [loss.backward() for loss in losses])
    thread.start()
    thread.join()
    assert instrumented_backend.report().summary.backward_calls == 3


def test_a_backward_without_calls_is_counted(fresh: None) -> None:
    # Inductor returns a plain function for a graph that only passes tensors on.
    compiled = torch.compile(lambda a, b: a + b, backend="instrumented")
    a, b = torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)
    for _ in range(4):
        compiled(a, b).backward(torch.ones(4))
    (graph,) = instrumented_backend.report().graphs
    assert (graph.calls, graph.backward_calls) == (4, 4)


def test_a_recompile_and_a_second_compile(fresh: None) -> None:
    compiled = torch.compile(two_layers, backend="instrumented", dynamic=False)
    compiled(torch.randn(8))
    compiled(torch.randn(9))
    dynamic = torch.compile(two_layers, backend="instrumented", dynamic=True)
    for size in (10, 11, 12):
        dynamic(torch.randn(size))
    report = instrumented_backend.report()
    assert [graph.calls for graph in report.graphs] == [1, 1, 3]
    assert [graph.compile_id for graph in report.graphs] == ["0/0", "0/1", "0/2"]
    first = report.recompiles[0]
    assert first.compile_id == "0/1" and first.function == "two_layers"
    assert first.reason is not None and "expected 8, actual 9" in first.reason


def test_graphs_that_dynamo_threw_away_are_none(fresh: None) -> None:
    """A float that changes: Dynamo starts over after the backend has compiled."""

    def scaled(x: torch.Tensor, n: float) -> tuple[torch.Tensor, float]:
        return x * 2 + 1, float(n) + 1.5

    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    compiled = torch.compile(scaled, backend="instrumented")
    for n in (0.25, 0.5):
        compiled(torch.ones(4), n)
    report = instrumented_backend.report()
    assert len(report.graphs) == 2
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == before + 2
    assert [(graph.compile_id, graph.calls) for graph in report.graphs] == [("0/0", 1), ("0/1", 1)]
    assert all(graph.compile_s["dynamo_s"] for graph in report.graphs)
    assert report.ops.captured.estimated == []
    assert sum(vars(report.caches.graphs).values()) == 2


def test_a_graph_that_inductor_refuses_is_none(fresh: None) -> None:
    def masked(x: torch.Tensor, mask: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        x = x * 1
        x[mask] = value
        return x

    compiled = torch.compile(masked, backend="instrumented", dynamic=False)
    mask = torch.tensor([[True, False], [False, True]])
    arguments = torch.randn(2, 2, 8, requires_grad=True), mask, torch.randn(8, requires_grad=True)
    assert torch.equal(compiled(*arguments), masked(*arguments))
    report = instrumented_backend.report()
    assert report.graphs == [] and report.summary.skipped_functions == 1
    (broken,) = report.breaks
    assert "Inductor failed with" in broken.reason
    assert broken.file == __file__ and broken.line == masked.__code__.co_firstlineno


@pytest.mark.full
def test_what_is_torchs_own_has_its_name(fresh: None) -> None:
    """Dynamo compiles a function of its own, ``inner``, that calls it."""
    model = torch.nn.Sequential(torch.nn.ReLU())
    for compiled in (model, torch.sin):
        torch.compile(compiled, backend="instrumented", dynamic=False)(torch.ones(8))
    torch.compile(model, backend="instrumented", dynamic=False)(torch.ones(9))
    report = instrumented_backend.report()
    named = [record.function for record in report.graphs]
    assert named == ["Sequential", "sin", "Sequential"]
    code = torch.nn.Sequential.forward.__code__
    for found in (report.graphs[0], report.compile.compilations[0]):
        assert (found.file, found.line) == (code.co_filename, code.co_firstlineno)
    again = {record.function for record in report.recompiles}
    assert again and again <= {"Sequential", "sin"}


def test_reset_starts_afresh(fresh: None) -> None:
    compiled = torch.compile(two_layers, backend="instrumented")
    other = torch.compile(lambda x: x * 3, backend="instrumented")
    compiled(torch.ones(8)), other(torch.ones(8))
    instrumented_backend.reset()
    report = instrumented_backend.report()
    assert report.graphs == [] and report.compile.compilations == []
    compiled(torch.ones(8))
    (graph,) = instrumented_backend.report().graphs
    assert (graph.function, graph.calls, graph.cache) == ("two_layers", 1, None)


def test_compile_ids_repeat_after_a_dynamo_reset(fresh: None) -> None:
    for _ in range(2):
        torch._dynamo.reset()
        compiled = torch.compile(two_layers, backend="instrumented")
        compiled(torch.ones(8)), compiled(torch.ones(8))
    first, second = instrumented_backend.report().graphs
    assert (first.compile_id, first.calls, first.function) == ("0/0", 2, "two_layers")
    assert (second.compile_id, second.calls, second.function) == ("0/0", 2, "two_layers")
    assert first.graph is not None and second.graph == first.graph + 1


def test_count_ops() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            values, _ = torch.max(x, 0)  # max and a getitem
            return values + 1

    assert count_ops(torch.fx.symbolic_trace(Model())) == 2


# --- In the user's profile ----------------------------------------------------------------------


def test_regions_in_the_users_profile(fresh: None) -> None:
    _, ours = profiled_steps("instrumented", "cpu")
    _, theirs = profiled_steps("inductor", "cpu")

    def names(events: list[Any]) -> collections.Counter[str]:
        return collections.Counter(event.name for event in events)

    added = names(ours) - names(theirs)
    assert added == {"TORCHDYNAMO": 5, "TORCHDYNAMO_BACKWARD": 5}
    assert names(theirs) - names(ours) == {}


def test_the_region_encloses_the_graph(fresh: None) -> None:
    _, events = profiled_steps("instrumented", "cpu")
    addmm = [event for event in events if event.name == "aten::addmm"]
    assert len(addmm) == 5
    for event in addmm:
        parents = []
        while event is not None:
            parents.append(event.name)
            event = event.cpu_parent
        assert "TORCHDYNAMO" in parents
