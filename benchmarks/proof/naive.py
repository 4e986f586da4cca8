"""What one would write by hand: Inductor, with a region of torch.profiler's round each call."""

from collections.abc import Callable

import torch


def record_function(
    gm: torch.fx.GraphModule, inputs: list[torch.Tensor], mode: str | None = None
) -> Callable[..., object]:
    """A Dynamo backend."""
    from torch._inductor.compile_fx import compile_fx

    patches = None if mode is None else torch._inductor.list_mode_options(mode)
    compiled = compile_fx(gm, inputs, config_patches=patches)

    def call(*args: object) -> object:
        with torch.profiler.record_function("TORCHDYNAMO"):
            return compiled(*args)

    return call
