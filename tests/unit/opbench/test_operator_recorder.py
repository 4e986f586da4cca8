"""Recording what a program calls, on real tensors and on fake ones."""

from pathlib import Path

import pytest
import record_operator_inputs
import torch
from click.testing import CliRunner
from opbench.input_log import read_log
from opbench.loader import INPUTS_FOLDER
from opbench.recorder import OperatorInputsMode
from torch._subclasses.fake_tensor import FakeTensorMode


def recorded_text(mode: OperatorInputsMode, folder: Path, **options: bool) -> str:
    path = folder / "log.txt"
    mode.log_to_file(path, **options)
    return path.read_text()


def program() -> None:
    x = torch.empty(4, 6, dtype=torch.float16)
    y = x.t()  # a view
    x.add_(1.0)
    x.add_(1.0)
    torch.cat([y, y], dim=1)
    x.sum(1, dtype=torch.float32)
    torch.zeros_like(x)  # a constructor
    x.split(2)  # a view with several results, which PyTorch's logs keep


EXPECTED = """\
Operator: aten.add_.Tensor
cnt: 2, ((T([4, 6], f16), 1.0), {})
Operator: aten.cat.default
cnt: 1, (([T([6, 4], f16, stride=(1, 6)), T([6, 4], f16, stride=(1, 6))], 1), {})
Operator: aten.split.Tensor
cnt: 1, ((T([4, 6], f16), 2), {})
Operator: aten.sum.dim_IntList
cnt: 1, ((T([4, 6], f16), [1]), {'dtype': f32})
"""


def test_a_program(tmp_path: Path) -> None:
    with OperatorInputsMode() as mode:
        program()
    assert recorded_text(mode, tmp_path) == EXPECTED
    assert "aten.t.default" in recorded_text(mode, tmp_path, skip_non_compute_operators=False)
    assert not mode.left_out


def test_on_fake_tensors(tmp_path: Path) -> None:
    with FakeTensorMode(), OperatorInputsMode() as mode:
        program()
    assert recorded_text(mode, tmp_path) == EXPECTED


def test_a_training_step_and_what_a_gpu_would_give(tmp_path: Path) -> None:
    """No memory: the weight alone would take 40 GB. Meta tensors stand for a GPU's."""
    with torch.device("meta"), FakeTensorMode():
        layer = torch.nn.Linear(10_000, 90_000, dtype=torch.float16)
        norm = torch.nn.LayerNorm(10_000, dtype=torch.float16)
        x = torch.randn(3, 10_000, dtype=torch.float16)
        with OperatorInputsMode() as mode:
            layer(norm(x)).sum().backward()
            torch.zeros(3, device="meta").to(device="meta", dtype=torch.float64)
    text = recorded_text(mode, tmp_path)
    log = read_log(tmp_path / "log.txt")
    assert {"aten.addmm.default", "aten.mm.default"} <= set(log)
    (norm_backward,) = log["aten.native_layer_norm_backward.default"]
    assert "[10000], T([3, 1], f32), T([3, 1], f32), " in norm_backward
    assert "{'dtype': f64, 'device': 'cuda'}" in text
    assert "meta" not in text


def test_before_the_call_changes_them(tmp_path: Path) -> None:
    x = torch.empty(0)
    with OperatorInputsMode() as mode:
        torch.add(torch.ones(3), 1, out=x)
    assert "'out': T([0], f32)" in recorded_text(mode, tmp_path)


def test_what_a_log_cannot_hold(tmp_path: Path) -> None:
    with FakeTensorMode(), OperatorInputsMode() as mode:
        torch.empty(1_000_000_000, dtype=torch.int8).abs()
        torch.empty(2, dtype=torch.float8_e4m3fn).view(torch.int8).neg()
        torch.empty(2).normal_(generator=torch.Generator())
        torch.empty(2).sin()
    assert dict(mode.left_out) == {
        "aten.abs.default: a tensor of more than 999999999 elements": 1,
        "aten.view.dtype: the format has no name for torch.float8_e4m3fn": 1,
        "aten.normal_.default: a log has no way to write a Generator": 1,
    }
    text = recorded_text(mode, tmp_path)
    assert "aten.sin.default" in text and "aten.abs.default" not in text


def test_sparse(tmp_path: Path) -> None:
    with OperatorInputsMode() as mode:
        torch.eye(3).to_sparse() * 2
    assert "((ST([3, 3], f32, torch.sparse_coo, True, 3), 2), {})" in recorded_text(mode, tmp_path)


def test_counts_go_on_in_the_same_log(tmp_path: Path) -> None:
    with OperatorInputsMode() as first:
        torch.ones(2).sin()
    with OperatorInputsMode(first.func_db) as second:
        torch.ones(2).sin()
    assert recorded_text(second, tmp_path) == (
        "Operator: aten.sin.default\ncnt: 2, ((T([2], f32),), {})\n"
    )


@pytest.mark.full  # and not with torch 2.11: today's transformers need more of fake tensors
def test_a_shipped_architecture(tmp_path: Path) -> None:
    """ViT-B/16: 64 images of 14² patches and a class token, 12 blocks; written by the command."""
    done = CliRunner().invoke(record_operator_inputs.main, ["vit_base", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    path = tmp_path / "timm" / "vit_base_patch16_224_training.txt"
    log = read_log(path)
    linear = "((T([768], f16), T([12608, 768], f16), T([768, 768], f16, stride=(1, 768))), {})"
    # Tokens: 64 · 197 = 12608. Query, key, value and output of 12 blocks: 48.
    assert log["aten.addmm.default"][linear][1] == 48
    assert set(log) == set(read_log(INPUTS_FOLDER / "timm" / path.name))
    wrong = CliRunner().invoke(record_operator_inputs.main, ["vitamin"])
    assert wrong.exit_code == 2 and "choose from gpt2" in wrong.output
