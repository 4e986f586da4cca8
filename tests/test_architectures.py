"""GPT-2, BERT, Llama and ViT: the results are Inductor's to the bit, and the report is right."""

import re
from pathlib import Path

import architectures
import pytest
import torch
from conftest import RunProgram

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
def test_results_on_cuda(fresh: None, run_program: RunProgram, name: str, mode: str) -> None:
    """Bit-identical wherever Inductor is bit-identical to itself.

    It is not between the process that tunes the kernels and the next ones, which is why another
    process fills the cache; nor where it adds with atomics (the gradients of embeddings).
    """

    def steps(backend: str) -> list[torch.Tensor]:
        torch._dynamo.reset()
        return architectures.run_steps(name, True, STEPS, device="cuda", backend=backend, mode=mode)

    run_program(
        f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import architectures
        for _ in range(2):
            architectures.run_steps(
                {name!r}, True, {STEPS}, device="cuda", backend="inductor", mode={mode!r}
            )
        """
    )
    theirs = [steps("inductor") for _ in range(3)]
    instrumented_backend.reset()
    ours = steps("instrumented")
    report = instrumented_backend.report()
    identical = 0
    for mine, first, *others in zip(ours, *theirs, strict=True):
        if all(torch.equal(first, other) for other in others):
            assert torch.equal(mine, first)
            identical += 1
        else:
            torch.testing.assert_close(mine, first)
    assert identical >= 0.9 * len(ours)
    assert report.summary["graph_calls"] == STEPS * len(report.graphs) > 0
    assert report.summary["backward_calls"] == STEPS * len(report.graphs)
    assert report.caches["graphs"]["hit"] == len(report.graphs)
    assert any(kernel.language == "triton" for kernel in report.kernels)
    assert not [note for note in report.notes if note.startswith("lost")]
