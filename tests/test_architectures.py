"""GPT-2, BERT, Llama and ViT: the results are Inductor's to the bit, and the report is right."""

import re
from pathlib import Path

import architectures
import pytest
import torch

import instrumented_backend

STEPS = 3


def assert_identical(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> None:
    assert len(ours) == len(theirs) > 0
    for mine, their in zip(ours, theirs, strict=True):
        assert torch.equal(mine, their)


def kernels_in(path: str) -> list[str]:
    """The kernels that a generated module defines, read with another method than the package's."""
    return re.findall(r"^(\w+) = async_compile\.\w+\(", Path(path).read_text(), re.MULTILINE)


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", architectures.ARCHITECTURES)
def test_results_and_report(fresh: None, name: str, training: bool) -> None:
    ours = architectures.run_steps(name, training, STEPS, backend="instrumented")
    report = instrumented_backend.report()
    torch._dynamo.reset()
    theirs = architectures.run_steps(name, training, STEPS, backend="inductor")
    assert_identical(ours, theirs)

    assert report.graphs
    assert report.summary["graphs"] == len(report.graphs)
    assert report.summary["graph_calls"] == STEPS * len(report.graphs)
    for graph in report.graphs:
        assert graph.calls == STEPS
        assert graph.backward_calls == (STEPS if training else 0)
        assert graph.direction == "forward"
        assert graph.function == "forward"
        assert graph.file is not None and graph.file.endswith(".py")
        assert {code.direction for code in graph.code} == (
            {"forward", "backward"} if training else {"forward"}
        )
        for code in graph.code:
            assert code.path is not None
            assert code.kernels == kernels_in(code.path)
    assert [k.kernel_name for k in report.kernels] == [
        name for graph in report.graphs for code in graph.code for name in kernels_in(code.path)
    ]
    assert not [note for note in report.notes if note.startswith("lost")]
    captured = report.summary["captured_ops"], report.summary["total_ops"]
    assert captured == (None, None) and any("not measured" in note for note in report.notes)


@pytest.mark.gpu
@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune"])
@pytest.mark.parametrize("name", architectures.ARCHITECTURES)
def test_results_on_cuda(fresh: None, name: str, mode: str) -> None:
    # Inductor differs from itself between the run that tunes the kernels and those that find
    # them in the cache, so that run is not compared.
    architectures.run_steps(name, True, STEPS, device="cuda", backend="inductor", mode=mode)
    torch._dynamo.reset()
    ours = architectures.run_steps(
        name, True, STEPS, device="cuda", backend="instrumented", mode=mode
    )
    report = instrumented_backend.report()
    torch._dynamo.reset()
    theirs = architectures.run_steps(
        name, True, STEPS, device="cuda", backend="inductor", mode=mode
    )
    assert_identical(ours, theirs)
    assert report.caches["graphs"]["hit"] == len(report.graphs)
    assert report.summary["graph_calls"] == STEPS * len(report.graphs) > 0
    assert report.summary["backward_calls"] == STEPS * len(report.graphs)
    assert any(kernel.language == "triton" for kernel in report.kernels)
    assert not [note for note in report.notes if note.startswith("lost")]
