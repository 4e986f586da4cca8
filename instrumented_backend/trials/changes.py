"""The changes that are tried, each with the line that a user would write."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Change:
    """``codes``: the next steps that tell what it can win at most."""

    name: str
    line: str
    codes: tuple[str, ...] = ()
    needs_cuda: bool = False
    mode: str | None = None  # of torch.compile


WARM_CACHES = "warm-caches"
EAGER = "eager"
DYNAMIC = "dynamic"
COMPILED_OPTIMIZER = "compiled-optimizer"
FUSED_OPTIMIZER = "fused-optimizer"
MATMUL_HIGH = "matmul-high"


def _mode(mode: str, *codes: str, needs_cuda: bool = False) -> Change:
    return Change(mode, f'torch.compile(model, mode="{mode}")', codes, needs_cuda, mode)


CHANGES = (
    _mode("reduce-overhead", "launch-bound", needs_cuda=True),
    _mode("max-autotune-no-cudagraphs", "max-autotune", "kernel"),
    # On a CPU it is the one above: what it has more are CUDA graphs.
    _mode("max-autotune", "max-autotune", "kernel", "launch-bound", needs_cuda=True),
    Change(DYNAMIC, "torch.compile(model, dynamic=True)", ("recompile",)),
    Change(COMPILED_OPTIMIZER, "step = torch.compile(optimizer.step), and step()", ("optimizer",)),
    Change(FUSED_OPTIMIZER, "fused=True, given to the optimizer", ("optimizer",)),
    Change(MATMUL_HIGH, 'torch.set_float32_matmul_precision("high")', ("tf32",)),
    Change(WARM_CACHES, "TORCHINDUCTOR_CACHE_DIR, kept between runs", ("cold-caches",)),
    Change(EAGER, "no torch.compile"),
)
BY_NAME = {change.name: change for change in CHANGES}
