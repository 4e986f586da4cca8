"""The op meter where ops are launched on one thread and differentiated on another."""

import pytest
import torch
from oracles import architectures, oracle

import instrumented_backend


@pytest.mark.parametrize("name", ["gpt2", "vit"])
def test_captured_ops(fresh: None, name: str) -> None:
    model, inputs = architectures.ARCHITECTURES[name]()
    model = model.cuda()
    inputs = {key: value.cuda() for key, value in inputs.items()}
    compiled = torch.compile(model, backend=oracle.run_in_region)
    compiled(**inputs).loss.backward()
    truth = oracle.profile(lambda: compiled(**inputs).loss.backward())
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="instrumented")
    for _ in range(3):
        compiled(**inputs).loss.backward()
    captured = instrumented_backend.report().ops.captured
    assert captured.forward_ops == pytest.approx(3 * truth.inside.total(), rel=0.01)
    assert captured.backward_ops == pytest.approx(3 * truth.backward, rel=0.02)


def test_lines_of_backward(fresh: None) -> None:
    """The autograd engine runs on a thread of its own, which has no frames of the user's."""
    layer = torch.nn.Linear(8, 8).cuda()
    compiled = torch.compile(lambda x: layer(x).relu().sum(), backend="instrumented")
    x = torch.randn(4, 8, device="cuda")
    for _ in range(5):
        compiled(x).backward()
    ops = instrumented_backend.report().ops
    rows = [row for row in ops.missing if row.op == "torch::autograd::AccumulateGrad"]
    assert sum(row.count for row in rows) == 10
    assert {row.function for row in rows} == {"test_lines_of_backward"}
    assert {row.file for row in rows} == {__file__}
