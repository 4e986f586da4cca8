"""Autograd: whether gradients are kept, and who runs the backward."""

from collections.abc import Callable
from types import CodeType

# Private names, by the versions of torch that have them.
NAMES = {
    "2.11 to 2.15": (
        "torch.autograd.graph._engine_run_backward",
        "torch._C._current_graph_task_id",
    ),
}


def is_grad_enabled() -> bool:
    import torch

    return torch.is_grad_enabled()


def is_running_backward(code: CodeType) -> bool:
    """Of a thread's innermost frame: has it called the autograd engine?"""
    from torch.autograd import graph

    return code is graph._engine_run_backward.__code__


def current_backward() -> Callable[[], int]:
    """Tells the number of the backward that a thread runs nodes of; -1: of none."""
    import torch

    function: Callable[[], int] = torch._C._current_graph_task_id
    return function
