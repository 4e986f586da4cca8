"""What random tensors an operator can take: the ranges of its indices, its positive arguments.

Where a wrong value would be an error, or read past a buffer on a GPU, the operator's schema says by
its argument names what is valid. Everything else takes any value.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from opbench.input_log import TensorSpec
from opbench.operators import arguments_by_name


@dataclass(frozen=True)
class Fill:
    """How one tensor is filled; integers lie in ``low <= x < high``."""

    low: int = 1  # not 0, which other integers are divided by
    high: int = 10
    unique_dim: int | None = None  # no index twice along it: the last of two writes would win
    true_count: int | None = None  # of a mask that as many values are written by
    ascending: bool = False  # offsets, from 0 on
    positive: bool = False  # floating-point numbers
    probability: bool = False  # in [0, 1]


Where = tuple[str, int | None]  # argument, and the place in it if it is a list
Arguments = dict[str, Any]
Fills = dict[Where, Fill]

_POSITIVE = {
    *("running_var", "save_invstd", "save_var", "invstd", "rstd", "variance", "total_weight"),
    *("exp_avg_sq", "max_exp_avg_sq", "state_sum", "lr", "scale", "scales"),
}


def fills(op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Fills:
    """The tensors that not any value will do for; raises ValueError where nothing would do."""
    named = {**arguments_by_name(op, args), **kwargs}
    found: Fills = {(name, None): Fill(positive=True) for name in _POSITIVE & set(named)}
    name = op._opname.rstrip("_")
    if name in ("bernoulli", "multinomial"):
        found["self", None] = found["p", None] = Fill(probability=True)
    if name in _RULES:
        found |= _RULES[name](named)
    return found


def _one(named: Arguments, argument: str, high: int, **more: Any) -> Fills:
    if math.prod(named[argument].shape) == 0:
        return {}  # no index at all is valid everywhere
    if high < 1:
        raise ValueError(f"no index is valid for {argument}: the dimension that it goes into is 0")
    return {(argument, None): Fill(0, high, **more)}


def _rows(table: str, indices: str) -> Callable[[Arguments], Fills]:
    return lambda named: _one(named, indices, named[table].shape[0])


def _along_dim(index: str, written: bool) -> Callable[[Arguments], Fills]:
    def rule(named: Arguments) -> Fills:
        shape = named["self"].shape or (1,)
        dim = named["dim"] % len(shape)
        size, index_shape = shape[dim], named[index].shape or (1,)
        # index_copy has one dimension of indices, scatter as many as ``self``.
        index_dim = dim if len(index_shape) == len(shape) else 0
        unique = written and index_shape[index_dim] <= size
        return _one(named, index, size, unique_dim=index_dim if unique else None)

    return rule


def _advanced(written: bool) -> Callable[[Arguments], Fills]:
    def rule(named: Arguments) -> Fills:
        found: Fills = {}
        dim = 0
        shape = named["self"].shape
        values = named.get("values")
        for place, index in enumerate(named["indices"]):
            if not isinstance(index, TensorSpec):
                dim += 1
                continue
            if index.dtype in ("b8", "u8"):
                count = None
                if written and values is not None and values.shape and values.shape[0] != 1:
                    count = values.shape[0]
                found["indices", place] = Fill(true_count=count)
                dim += len(index.shape)
                continue
            if math.prod(index.shape) == 0:
                dim += 1
                continue
            if shape[dim] < 1:
                raise ValueError(f"no index is valid for dimension {dim}: its size is 0")
            # Two writes to one place need equal indices in all dimensions: the largest differs.
            largest = shape[dim] == max(shape[: len(named["indices"])])
            unique = written and largest and math.prod(index.shape) <= shape[dim]
            found["indices", place] = Fill(0, shape[dim], unique_dim=-1 if unique else None)
            dim += 1
        return found

    return rule


def _classes(named: Arguments) -> Fills:
    if not isinstance(named["target"], TensorSpec) or named["target"].dtype not in ("i64", "u8"):
        return {}  # probabilities of classes
    shape = named["self"].shape
    return _one(named, "target", shape[1 if len(shape) > 1 else 0])


def _embedding_bag(named: Arguments) -> Fills:
    rows = named["weight"].shape[0] if "weight" in named else named["num_weights"]
    found = _one(named, "indices", rows)
    if "offsets" in named:
        places = max(1, math.prod(named["indices"].shape))
        found["offsets", None] = Fill(0, places, ascending=True)
    if "offset2bag" in named:
        found |= _one(named, "offset2bag", named["grad"].shape[0], ascending=True)
    if "maximum_indices" in named:
        found |= _one(named, "maximum_indices", rows)
    return found


def _pooled(dimensions: int) -> Callable[[Arguments], Fills]:
    return lambda named: _one(named, "indices", math.prod(named["self"].shape[-dimensions:]))


def _unpooled(named: Arguments) -> Fills:
    return _one(named, "indices", math.prod(named["output_size"]))


def _one_hot(named: Arguments) -> Fills:
    classes = named.get("num_classes", -1)
    return _one(named, "self", classes) if classes > 0 else {}


_RULES: dict[str, Callable[[Arguments], Fills]] = {
    "embedding": _rows("weight", "indices"),
    "embedding_renorm": _rows("self", "indices"),
    "embedding_dense_backward": lambda named: _one(named, "indices", named["num_weights"]),
    "embedding_backward": lambda named: _one(named, "indices", named["num_weights"]),
    "embedding_bag": _embedding_bag,
    "_embedding_bag": _embedding_bag,
    "_embedding_bag_forward_only": _embedding_bag,
    "_embedding_bag_backward": _embedding_bag,
    "_embedding_bag_dense_backward": _embedding_bag,
    "_embedding_bag_per_sample_weights_backward": _embedding_bag,
    "gather": _along_dim("index", written=False),
    "gather_backward": _along_dim("index", written=False),
    "take_along_dim": lambda named: (
        _along_dim("indices", written=False)(named) if named.get("dim") is not None else {}
    ),
    "index_select": _along_dim("index", written=False),
    "index_add": _along_dim("index", written=False),
    "index_reduce": _along_dim("index", written=False),
    "scatter_add": _along_dim("index", written=False),
    "scatter_reduce": _along_dim("index", written=False),
    "scatter": _along_dim("index", written=True),
    "index_copy": _along_dim("index", written=True),
    "index_fill": _along_dim("index", written=True),
    "index": _advanced(written=False),
    "_unsafe_index": _advanced(written=False),
    "index_put": _advanced(written=True),
    "_index_put_impl": _advanced(written=True),
    "_unsafe_index_put": _advanced(written=True),
    "take": lambda named: _one(named, "index", math.prod(named["self"].shape)),
    "put": lambda named: _one(named, "index", math.prod(named["self"].shape)),
    "nll_loss_forward": _classes,
    "nll_loss_backward": _classes,
    "nll_loss": _classes,
    "nll_loss2d": _classes,
    "nll_loss2d_forward": _classes,
    "nll_loss2d_backward": _classes,
    "cross_entropy_loss": _classes,
    "max_pool2d_with_indices_backward": _pooled(2),
    "max_pool3d_with_indices_backward": _pooled(3),
    "adaptive_max_pool2d_backward": _pooled(2),
    "adaptive_max_pool3d_backward": _pooled(3),
    "fractional_max_pool2d_backward": _pooled(2),
    "max_unpool2d": _unpooled,
    "max_unpool3d": _unpooled,
    "one_hot": _one_hot,
}
