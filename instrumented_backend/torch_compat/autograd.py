"""Autograd: whether gradients are kept, and who runs the backward."""

from types import CodeType

# Private names, by the versions of torch that have them.
NAMES = {
    "2.11 to 2.15": ("torch.autograd.graph._engine_run_backward",),
}


def is_grad_enabled() -> bool:
    import torch

    return torch.is_grad_enabled()


def is_running_backward(code: CodeType) -> bool:
    """Of a thread's innermost frame: has it called the autograd engine?"""
    from torch.autograd import graph

    return code is graph._engine_run_backward.__code__
