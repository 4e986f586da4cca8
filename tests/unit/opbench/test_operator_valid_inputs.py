"""Operators that don't take any random integers run with what is made for them."""

import pytest
import torch
from opbench.input_log import parse_inputs
from opbench.operators import find_operator
from opbench.tensors import make_arguments


def arguments(operator: str, text: str) -> tuple[torch._ops.OpOverload, tuple, dict]:
    op = find_operator(operator)
    return op, *make_arguments(op, parse_inputs(text), torch.float32, "cpu")


@pytest.mark.parametrize(
    "operator, text",
    [
        ("aten.embedding.default", "((T([3, 8], f16), T([4, 50], i64), 0), {})"),
        (
            "aten.embedding_dense_backward.default",
            "((T([4, 50, 8], f16), T([4, 50], i64), 3, -1, False), {})",
        ),
        (
            "aten._embedding_bag.default",
            "((T([3, 8], f16), T([60], i64), T([20], i64), False, 0, False), {})",
        ),
        (
            "aten._embedding_bag_per_sample_weights_backward.default",
            "((T([1024, 192], f16, stride=(478, 1)), T([965, 192], f16), T([54765], i64), "
            "T([1024], i64), T([54765], i64), 0), {})",
        ),
        (
            "aten._embedding_bag_dense_backward.default",
            "((T([20, 8], f16), T([60], i64), T([60], i64), T([20], i64), T([20], i64), 3, False, "
            "0, None), {})",
        ),
        ("aten.embedding_renorm_.default", "((T([3, 8], f16), T([50], i64), 1.0, 2.0), {})"),
        ("aten.gather.default", "((T([40, 3], f16), 1, T([40, 50], i64)), {})"),
        ("aten.gather.default", "((T([40, 3], f16), -1, T([40, 50], i64, stride=(1, 40))), {})"),
        ("aten.scatter.src", "((T([40, 9], f16), 1, T([40, 9], i64), T([40, 9], f16)), {})"),
        ("aten.scatter_.value", "((T([40, 3], f16), 1, T([40, 1], i64), -1.0), {})"),
        ("aten.scatter_add.default", "((T([2], f16), 0, T([50], i64), T([50], f16)), {})"),
        (
            "aten.scatter_reduce.two",
            "((T([2, 5], f16), 0, T([50, 5], i64), T([50, 5], f16), 'amax'), {})",
        ),
        ("aten.index_select.default", "((T([2, 5], f16), 0, T([50], i64)), {})"),
        ("aten.index_add.default", "((T([2, 5], f16), 0, T([50], i64), T([50, 5], f16)), {})"),
        ("aten.index_copy.default", "((T([9, 5], f16), 0, T([3], i64), T([3, 5], f16)), {})"),
        ("aten.index_fill.int_Scalar", "((T([9, 5], f16), 1, T([3], i64), 1.0), {})"),
        ("aten.index.Tensor", "((T([4, 2, 7], f16), [T([50], i64), None, T([50], i64)]), {})"),
        ("aten.index.Tensor", "((T([4, 2, 7], f16), [None, T([50, 1], i64)]), {})"),
        ("aten.index.Tensor", "((T([4, 2], f16), [T([4, 2], b8)]), {})"),
        (
            "aten.index_put.default",
            "((T([4, 1024, 2], f16), [T([4], i64), T([4], i64)], T([4, 2], f16), True), {})",
        ),
        ("aten.index_put_.default", "((T([40, 2], f16), [T([40], b8)], T([7, 2], f16)), {})"),
        ("aten.index_put_.default", "((T([40, 2], f16), [T([40, 2], b8)], T([], f16)), {})"),
        (  # no index at all, as Mask R-CNN has where nothing was detected
            "aten._index_put_impl_.default",
            "((T([0, 4], f16), [T([0], i64)], T([0, 4], f16), True, True), {})",
        ),
        ("aten.index_select.default", "((T([0, 4], f16), 0, T([0], i64)), {})"),
        ("aten._unsafe_index.Tensor", "((T([4, 2], f16), [T([9], i64), T([9], i64)]), {})"),
        ("aten.take.default", "((T([4, 2], f16), T([90], i64)), {})"),
        ("aten.nll_loss_forward.default", "((T([40, 2], f16), T([40], i64), None, 1, -100), {})"),
        (
            "aten.nll_loss_backward.default",
            "((T([], f16), T([40, 2], f16), T([40], i64), None, 1, -100, T([], f16)), {})",
        ),
        (
            "aten.nll_loss2d_forward.default",
            "((T([4, 2, 5, 5], f16), T([4, 5, 5], i64), None, 1, -100), {})",
        ),
        ("aten.nll_loss_forward.default", "((T([2], f16), T([], i64), None, 1, -100), {})"),
        ("aten.cross_entropy_loss.default", "((T([40, 2], f16), T([40], i64)), {})"),
        ("aten.cross_entropy_loss.default", "((T([40, 2], f16), T([40, 2], f16)), {})"),
        (
            "aten.max_pool2d_with_indices_backward.default",
            "((T([2, 3, 2, 2], f16), T([2, 3, 4, 4], f16), [2, 2], [2, 2], [0, 0], [1, 1], False, "
            "T([2, 3, 2, 2], i64)), {})",
        ),
        (
            "aten.max_unpool2d.default",
            "((T([2, 3, 2, 2], f16), T([2, 3, 2, 2], i64), [4, 4]), {})",
        ),
        ("aten.one_hot.default", "((T([50], i64), 3), {})"),
        ("aten.bernoulli.default", "((T([50], f16),), {})"),
        ("aten.bernoulli_.Tensor", "((T([50], f16), T([50], f16)), {})"),
        ("aten.multinomial.default", "((T([50], f16), 3), {})"),
        ("aten.floor_divide.default", "((T([500], i64), T([500], i64)), {})"),
        ("aten.remainder.Tensor", "((T([500], i32), T([500], i32)), {})"),
    ],
)
def test_it_runs(operator: str, text: str) -> None:
    op, args, kwargs = arguments(operator, text)
    op(*args, **kwargs)  # raises on an index out of range


def test_no_place_is_written_twice() -> None:
    _, (_, _, index, _), _ = arguments(
        "aten.scatter.src", "((T([40, 9], f16), 1, T([40, 9], i64), T([40, 9], f16)), {})"
    )
    assert torch.equal(index.sort(dim=1).values, torch.arange(9).expand(40, 9))
    assert not torch.equal(index[0], index[1])
    _, (_, (first, second), _, _), _ = arguments(
        "aten.index_put.default",
        "((T([4, 1024, 2], f16), [T([40], i64), T([40], i64)], T([40, 2], f16), False), {})",
    )
    assert len(set(zip(first.tolist(), second.tolist(), strict=True))) == 40
    assert first.max() < 4


def test_a_mask_selects_as_many_as_there_are_values() -> None:
    _, (_, (mask,), _), _ = arguments(
        "aten.index_put_.default", "((T([40, 2], f16), [T([40], b8)], T([7, 2], f16)), {})"
    )
    assert mask.dtype == torch.bool and int(mask.sum()) == 7


def test_variances_are_positive() -> None:
    _, args, _ = arguments(
        "aten.native_batch_norm.default",
        "((T([2, 300], f16), T([300], f16), T([300], f16), T([300], f16), T([300], f16), False, "
        "0.1, 1e-05), {})",
    )
    assert (args[4] > 0).all() and not (args[3] > 0).all()
