"""PyTorch's functions in C that Python calls."""

from collections.abc import Iterator
from typing import Any

# Private names, by the versions of torch that have them.
NAMES = {
    "2.11 to 2.15": (
        "torch._C.TensorBase",
        "torch._C._VariableFunctions",
        "torch._C._nn",
    ),
}


def functions() -> Iterator[Any]:
    """Methods of tensors, what ``torch`` and its modules have, and `torch.nn.functional` calls."""
    import torch

    places = (
        torch._C.TensorBase,
        type(torch._C._VariableFunctions),
        torch._C._nn,
        torch.fft,
        torch.linalg,
        torch.nested,
        torch.sparse,
        torch.special,
    )
    for place in places:
        for function in vars(place).values():
            yield getattr(function, "__func__", function)
