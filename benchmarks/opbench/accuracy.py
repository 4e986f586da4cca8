"""Whether a compiled operator gives what eager gave."""

import math
from collections.abc import Iterator
from typing import Any

import torch

from opbench.tensors import tensors_in

MIN_COSINE = 0.99
MAX_NORM_DIFFERENCE = 0.01  # of the larger norm: a cosine says nothing about scale
OK = "ok"
_PIECE = 2**24  # elements


def compare(actual: Any, expected: Any) -> str:
    """ "ok", or what differs with the largest difference.

    Floating point by cosine similarity and norm, with NaN and infinities in the same places; all
    else exactly. Tensors are compared one by one, in order.
    """
    ours, theirs = tensors_in(actual), tensors_in(expected)
    if len(ours) != len(theirs):
        return f"{len(ours)} results instead of {len(theirs)}"
    for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        what = _difference(one, other)
        if what is not None:
            return what if len(ours) == 1 else f"result {number}: {what}"
    return OK


def _difference(actual: torch.Tensor, expected: torch.Tensor) -> str | None:
    if actual.shape != expected.shape:
        return f"shape {tuple(actual.shape)} instead of {tuple(expected.shape)}"
    if actual.dtype != expected.dtype:
        return f"{actual.dtype} instead of {expected.dtype}"
    if not (expected.is_floating_point() or expected.is_complex()):
        if torch.equal(actual, expected):
            return None
        different = int((actual != expected).sum())
        largest = max(_largest(*pair) for pair in _pieces(actual, expected))
        of = f"{different} of {expected.numel()} elements differ"
        return f"{of}; largest difference {largest:.4g}"
    nan = [0, 0]  # ours and theirs, as are the next
    squares = [0.0, 0.0]
    infinities_differ, dot, largest = False, 0.0, 0.0
    for ours, theirs in _pieces(actual, expected):
        if not torch.equal(ours.isnan(), theirs.isnan()):
            nan = [nan[0] + int(ours.isnan().sum()), nan[1] + int(theirs.isnan().sum())]
        infinite = ours.isinf() | theirs.isinf()
        infinities_differ |= not torch.equal(ours[infinite], theirs[infinite])
        finite = ours.isfinite() & theirs.isfinite()
        ours, theirs = ours[finite], theirs[finite]
        squares = [squares[0] + _square(ours), squares[1] + _square(theirs)]
        dot += float((ours.conj() * theirs).sum().real)
        largest = max(largest, _largest(ours, theirs))
    if nan != [0, 0]:
        return f"{nan[0]} NaN instead of {nan[1]}; largest difference elsewhere {largest:.4g}"
    if infinities_differ:
        return f"infinities differ; largest difference elsewhere {largest:.4g}"
    norms = [math.sqrt(square) for square in squares]
    if max(norms) == 0:
        return None
    cosine = dot / (norms[0] * norms[1]) if min(norms) else 0.0
    if cosine < MIN_COSINE or abs(norms[0] - norms[1]) > MAX_NORM_DIFFERENCE * max(norms):
        figures = f"cosine {cosine:.4f}, norm {norms[0]:.4g} for {norms[1]:.4g}"
        return f"{figures}; largest difference {largest:.4g}"
    return None


def _pieces(
    actual: torch.Tensor, expected: torch.Tensor
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Both at double precision, piece by piece: the whole might not fit into memory so."""
    wide = torch.complex128 if expected.is_complex() else torch.float64
    for ours, theirs in zip(
        actual.flatten().split(_PIECE), expected.flatten().split(_PIECE), strict=True
    ):
        yield ours.to(wide), theirs.to(wide)


def _square(values: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(values)) ** 2


def _largest(actual: torch.Tensor, expected: torch.Tensor) -> float:
    return float((actual - expected).abs().max()) if actual.numel() else 0.0
