"""What one would write by hand: Inductor, with a region of torch.profiler's round each call."""

from collections.abc import Callable

import torch


def record_function(gm: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., object]:
    """A Dynamo backend."""
    from torch._inductor.compile_fx import compile_fx

    compiled = compile_fx(gm, inputs)

    def call(*args: object) -> object:
        with torch.profiler.record_function("TORCHDYNAMO"):
            return compiled(*args)

    return call
