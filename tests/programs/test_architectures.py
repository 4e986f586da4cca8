"""GPT-2, BERT, Llama and ViT: the results are Inductor's to the bit, and the report is right."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from architecture_results import STEPS, differing
from oracles import architectures

import instrumented_backend
from instrumented_backend.records import notes


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Inductor adds some gradients atomically: on two threads it differs from itself."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def kernels_in(path: str) -> list[str]:
    """The kernels that a generated module defines, read with another method than the package's."""
    return re.findall(r"^(\w+) = async_compile\.\w+\(", Path(path).read_text(), re.MULTILINE)


@pytest.mark.full
@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", architectures.ARCHITECTURES)
def test_results_and_report(fresh: None, one_thread: None, name: str, training: bool) -> None:
    ours = architectures.run_steps(name, training, STEPS, backend="instrumented")
    report = instrumented_backend.report()
    torch._dynamo.reset()
    theirs = architectures.run_steps(name, training, STEPS, backend="inductor")
    assert differing(ours, theirs) == []

    assert report.graphs
    assert report.summary.graphs == len(report.graphs)
    assert report.summary.graph_calls == STEPS * len(report.graphs)
    for graph in report.graphs:
        assert graph.calls == STEPS
        assert graph.backward_calls == (STEPS if training else 0)
        assert graph.direction == "forward"
        assert graph.function and graph.file and Path(graph.file).is_file()
        assert {code.direction for code in graph.code} == (
            {"forward", "backward"} if training else {"forward"}
        )
        for code in graph.code:
            assert code.path is not None
            assert code.kernels == kernels_in(code.path)
    assert [k.kernel_name for k in report.kernels if k.language != "extern"] == [
        name for graph in report.graphs for code in graph.code for name in kernels_in(code.path)
    ]
    assert not report.coded_notes({notes.LOST})
    # How many is tested against torch.profiler in test_captured.py.
    assert report.ops.captured.ops == report.summary.captured_ops > 30 * STEPS
    assert (
        report.ops.captured.backward_ops
        == sum(STEPS * graph.backward_ops for graph in report.graphs) * training
    )
    assert report.ops.captured.estimated == []
