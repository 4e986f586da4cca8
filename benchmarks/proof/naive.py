"""Round each call of a graph: a region of torch.profiler's, as by hand, or as good as nothing."""

import functools
from collections.abc import Callable

import torch


def with_partial(gm: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., object]:
    """A Dynamo backend: Inductor, and in a graph's place C that does nothing but call it."""
    from torch._inductor.compile_fx import compile_fx

    compiled = compile_fx(gm, inputs)
    return functools.wraps(compiled)(functools.partial(compiled))


def record_function(
    gm: torch.fx.GraphModule, inputs: list[torch.Tensor], mode: str | None = None
) -> Callable[..., object]:
    """A Dynamo backend: Inductor, with a region round each call."""
    from torch._inductor.compile_fx import compile_fx

    patches = None if mode is None else torch._inductor.list_mode_options(mode)
    compiled = compile_fx(gm, inputs, config_patches=patches)

    def call(*args: object) -> object:
        with torch.profiler.record_function("TORCHDYNAMO"):
            return compiled(*args)

    return call
