"""Whether a compiled operator gives what eager gave."""

from typing import Any

import torch

from opbench.tensors import tensors_in

MIN_COSINE = 0.99
MAX_NORM_DIFFERENCE = 0.01  # of the larger norm: a cosine says nothing about scale
OK = "ok"


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
        return f"{different} of {expected.numel()} elements differ; {_largest(actual, expected)}"
    wide = torch.complex128 if expected.is_complex() else torch.float64
    ours, theirs = actual.to(wide).flatten(), expected.to(wide).flatten()
    if not torch.equal(ours.isnan(), theirs.isnan()):
        return f"{int(ours.isnan().sum())} NaN instead of {int(theirs.isnan().sum())}"
    infinite = theirs.isinf()
    if not torch.equal(ours.isinf(), infinite) or not torch.equal(ours[infinite], theirs[infinite]):
        return f"{int(ours.isinf().sum())} infinities instead of {int(infinite.sum())}, or others"
    finite = theirs.isfinite()
    ours, theirs = ours[finite], theirs[finite]
    norms = [float(torch.linalg.vector_norm(values)) for values in (ours, theirs)]
    if max(norms) == 0:
        return None
    if min(norms) == 0:
        return _largest(ours, theirs)
    cosine = float((ours.conj() * theirs).sum().real) / (norms[0] * norms[1])
    if cosine < MIN_COSINE or abs(norms[0] - norms[1]) > MAX_NORM_DIFFERENCE * max(norms):
        return f"cosine {cosine:.4f}, norm {norms[0]:.4g} for {norms[1]:.4g}; " + _largest(
            ours, theirs
        )
    return None


def _largest(actual: torch.Tensor, expected: torch.Tensor) -> str:
    wide = torch.complex128 if expected.is_complex() else torch.float64
    return f"largest difference {float((actual.to(wide) - expected.to(wide)).abs().max()):.4g}"
