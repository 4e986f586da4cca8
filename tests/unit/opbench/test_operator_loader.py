"""Many logs as one, and the random tensors that stand in for what was logged."""

from pathlib import Path

import pytest
import torch
from opbench.input_log import InputLogError, Inputs, TensorSpec, parse_inputs
from opbench.loader import INPUTS_FOLDER, OperatorInputsLoader, load_folder
from opbench.operators import UnknownOperator, find_operator, is_compute, skip_reason
from opbench.tensors import (
    CannotMake,
    clone,
    convert,
    make_arguments,
    map_specs,
    to_channels_last,
    torch_dtype,
)
from opbench.valid_inputs import fills
from paths import DATA
from torch._subclasses.fake_tensor import FakeTensorMode

GPT2 = DATA / "operator_inputs/GPT2ForSequenceClassification_training.txt"
aten = torch.ops.aten


def log(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_pytorchs_methods() -> None:
    loader = OperatorInputsLoader(GPT2)
    operators = list(loader.get_all_ops())
    assert len(operators) == 33 and aten.bmm.default in operators
    assert loader.get_call_frequency(aten.add.Tensor) == 1 + 48 + 36 + 12
    assert loader.get_call_frequency("aten.sum.dim_IntList") == 24 + 12 + 12 + 1 + 1
    generator = loader.get_inputs_for_operator(aten.where.self, dtype=torch.float32, device="cpu")
    args, kwargs = next(generator)
    assert [(tuple(arg.shape), arg.dtype) for arg in args] == [
        ((1, 1, 1024, 1024), torch.bool),
        ((4, 12, 1024, 1024), torch.float32),
        ((), torch.float32),
    ]
    assert kwargs == {}
    assert list(generator) == []
    with pytest.raises(KeyError, match=r"aten\.cos\.default is not in the log"):
        loader.get_call_frequency("aten.cos.default")


def test_merging(tmp_path: Path) -> None:
    log(tmp_path, "a.txt", "Operator: aten.cos.default\ncnt: 2, ((T([4], f16),), {})\n")
    log(
        tmp_path,
        "b.txt",
        "Operator: aten.cos.default\ncnt: 3, ((T([4], f16),), {})\ncnt: 9, ((T([5], f16),), {})\n"
        "Operator: aten.gone.default\ncnt: 1, ((T([4], f16),), {})\n",
    )
    loader = load_folder(tmp_path)
    assert [count for _, count in loader.logged_inputs("aten.cos.default")] == [9, 5]
    assert loader.get_call_frequency(aten.cos.default) == 14
    assert list(loader.get_all_ops()) == [aten.cos.default]
    assert list(loader.unknown_ops()) == ["aten.gone.default"]
    with pytest.raises(InputLogError, match=r"no \.txt log"):
        load_folder(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "load, architecture, shape",
    [
        # Published sizes: ResNet-50's first convolution, BERT's word embeddings, Llama 3.2 1B's.
        (OperatorInputsLoader.get_timm_loader, "aten.convolution.default", (64, 3, 7, 7)),
        (OperatorInputsLoader.get_huggingface_loader, "aten.embedding.default", (30522, 768)),
        (OperatorInputsLoader.get_torchbench_loader, "aten.embedding.default", (128256, 2048)),
    ],
)
def test_shipped_suites(load, architecture: str, shape: tuple[int, ...]) -> None:
    loader = load()
    assert loader.unknown_ops() == {}
    specs = [inputs.args[:2] for inputs, _ in loader.logged_inputs(architecture)]
    assert any(TensorSpec(shape, "f16") in pair for pair in specs)
    # A training step: forward, backward, optimizer.
    names = set(loader.operator_db)
    assert {"aten._log_softmax.default", "aten.nll_loss_backward.default"} <= names
    assert "aten.addcdiv_.default" in names
    assert all(is_compute(op) for op in loader.get_all_ops())


def test_shipped_logs_are_small_and_say_how_they_were_made() -> None:
    logs = list(INPUTS_FOLDER.glob("*/*.txt"))
    assert len(logs) >= 8 and sum(path.stat().st_size for path in logs) < 2_000_000
    commands = (INPUTS_FOLDER / "README.md").read_text()
    assert all(f"{path.parent.name}/{path.name}" in commands for path in logs)


@pytest.mark.full
def test_shipped_inputs_can_be_called() -> None:
    """On fake tensors: each shipped sample is one that its operator takes, at two dtypes."""
    logs = [load_folder(INPUTS_FOLDER / suite) for suite in ("timm", "huggingface", "torchbench")]
    called = 0
    for loader in logs:
        for op in loader.get_all_ops():
            for inputs, _ in loader.logged_inputs(op)[:15]:
                for dtype in (torch.float16, torch.float32):
                    converted = convert(op, inputs, dtype)
                    fills(op, converted.args, converted.kwargs)
                    with FakeTensorMode(allow_non_fake_inputs=False):
                        args, kwargs = map_specs(fake, (converted.args, converted.kwargs))
                        op(*args, **kwargs)
                    called += 1
    assert called > 1000


def fake(spec: TensorSpec) -> torch.Tensor:
    dtype = torch_dtype(spec.dtype)
    if spec.stride is None:
        return torch.empty(spec.shape, dtype=dtype)
    return torch.empty_strided(spec.shape, spec.stride, dtype=dtype)


def test_finding_operators() -> None:
    assert find_operator("aten.add.Tensor") is aten.add.Tensor
    with pytest.raises(UnknownOperator, match=r"has the overloads .*Tensor"):
        find_operator("aten.add.Nothing")
    for name in (
        "aten.nothing.default",
        "nowhere.add.Tensor",
        "ops.load_library.x",
        "aten.__x__.y",
    ):
        with pytest.raises(UnknownOperator, match="has no operator"):
            find_operator(name)


@pytest.mark.parametrize(
    "op, reason",
    [
        (aten.view.default, "a view"),
        (aten.split.Tensor, "a view"),
        (aten._unsafe_view.default, "a view"),
        (aten.zeros_like.default, "a constructor"),
        (aten.new_empty.default, "it only allocates"),
        (aten._local_scalar_dense.default, "it returns no tensor"),
        (aten._cdist_forward.default, None),
        (aten._linalg_eigh.default, None),
        (aten.nonzero.default, "the shape of its result depends on data"),
        (aten.index.Tensor, None),  # by masks alone; see `sample`
        (aten.add_.Tensor, None),
        (aten.addcdiv_.default, None),
        (aten.div_.Scalar, None),
        (aten.convolution.default, None),
        (aten.matmul.default, None),
        (aten.index_put_.default, None),
    ],
)
def test_what_there_is_to_measure(op: torch._ops.OpOverload, reason: str | None) -> None:
    found = skip_reason(op)
    assert found is None if reason is None else found is not None and found.startswith(reason)


def test_no_inductor_implementation() -> None:
    with torch.library._scoped_library("opbench_test", "DEF") as library:
        library.define("triple(Tensor x) -> Tensor")
        op = torch.ops.opbench_test.triple.default
        assert str(skip_reason(op)).startswith("no Inductor implementation")


@pytest.mark.parametrize(
    "dtype, half, single",
    [
        (None, "f16", "f32"),
        (torch.float16, "f16", "f32"),  # as it was logged
        (torch.bfloat16, "bf16", "f32"),
        (torch.float32, "f32", "f32"),
    ],
)
def test_dtypes(dtype: torch.dtype | None, half: str, single: str) -> None:
    text = "((T([2], f16), [T([3], f32)], f16, T([4], i64), torch.bool), {'dtype': torch.float16})"
    converted = convert(aten.add.Tensor, parse_inputs(text), dtype)
    assert str(converted) == (
        f"((T([2], {half}), [T([3], {single})], {half}, T([4], i64), b8), {{'dtype': {half}}})"
    )


def test_a_softmax_has_nothing_to_widen_in_float32() -> None:
    inputs = parse_inputs("((T([4, 2], f16), 1, True), {})")
    assert convert(aten._softmax.default, inputs, torch.float32).args[2] is False
    assert convert(aten._softmax.default, inputs, torch.float16).args[2] is True


def test_tensors_are_as_logged_random_and_the_same_each_time() -> None:
    inputs = parse_inputs(
        "(([T([4, 3], f32, stride=(1, 4)), T([2, 3], f32, stride=(0, 1)), T([5], i64)], 0), {})"
    )
    (tensors, dim), kwargs = make_arguments(aten.cat.default, inputs, None, "cpu")
    (again, _), _ = make_arguments(aten.cat.default, inputs, None, "cpu")
    assert [tensor.stride() for tensor in tensors] == [(1, 4), (0, 1), (1,)]
    assert dim == 0 and kwargs == {}
    for one, other in zip(tensors, again, strict=True):
        assert torch.equal(one, other) and one.data_ptr() != other.data_ptr()
    assert len(tensors[0].unique()) == 12
    assert torch.equal(tensors[1][0], tensors[1][1])
    assert tensors[2].min() >= 1  # other integers are divided by it


def test_arguments_that_cannot_be_made() -> None:
    for op, text, complaint in [
        (aten.relu.default, "((ST([2], f32, torch.sparse_coo, True),), {})", "sparse"),
        (aten.relu.default, "((T([2], f32), 1, 2), {})", "more arguments than aten::relu"),
        (aten.gather.default, "((T([2], f32),), {})", "not those of aten::gather"),
        (aten.embedding.default, "((T([0, 4], f32), T([2], i64)), {})", "no index is valid"),
    ]:
        with pytest.raises(CannotMake, match=complaint):
            make_arguments(op, parse_inputs(text), None, "cpu")


def test_clone_keeps_strides() -> None:
    expanded = torch.randn(1, 3).expand(4, 3)
    transposed = torch.randn(3, 4).t()
    one, (other,) = clone([expanded, (transposed,)])
    assert one.stride() == (0, 1) and torch.equal(one, expanded)
    assert other.stride() == (1, 4) and torch.equal(other, transposed)
    assert one.data_ptr() != expanded.data_ptr()


def test_channels_last() -> None:
    four, two = to_channels_last([torch.randn(2, 3, 4, 5), torch.randn(2, 3)])
    assert four.is_contiguous(memory_format=torch.channels_last) and not four.is_contiguous()
    assert two.is_contiguous()


def test_inputs_are_plain_data() -> None:
    assert str(Inputs((TensorSpec((2,), "f32"),), {"dim": 1})) == "((T([2], f32),), {'dim': 1})"
