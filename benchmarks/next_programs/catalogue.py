"""Programs that one change makes faster, and one that none does: as they are, and changed.

A program is a function of ``compile`` (`torch.compile` with a backend), of whether it is
``changed``, and of its device. It returns a number that has to stay the same, the loop's own
result.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

Compile = Callable[..., Any]
Program = Callable[[Compile, bool, str], float]
log = logging.getLogger("a program")


@dataclass(frozen=True)
class Known:
    """The code of the step that says what to change; None: nothing does."""

    program: Program
    code: str | None
    cold: bool = False  # the change is a warm cache
    needs_cuda: bool = False
    is_trial: bool = False  # only a trial tells


def varying_lengths(compile: Compile, changed: bool, device: str) -> float:
    weight = torch.full((64, 64), 0.01, device=device)
    product = compile(lambda x: x.mm(weight).mm(weight), dynamic=changed)
    torch._dynamo.config.recompile_limit = 100
    return sum(float(product(torch.ones(8 + i % 12, 64, device=device)).sum()) for i in range(400))


def item_between(compile: Compile, changed: bool, device: str) -> float:
    def normalize(x: Tensor) -> Tensor:
        x = (x * 2).sin()
        largest = x.abs().max()
        return (x + 1) / (largest if changed else largest.item())

    run, x = compile(normalize), torch.linspace(0, 1, 64, device=device)
    for _ in range(20_000):
        y = run(x)
    return float(y.sum())


class SideBySide(nn.Module):
    """Gradients of layers that do not depend on each other: rounding stays as small as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(100))

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([layer(x) for layer in self.layers])


def eager_optimizer(compile: Compile, changed: bool, device: str) -> float:
    torch.manual_seed(0)
    model = SideBySide().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), fused=changed)
    run, x = compile(model), torch.ones(2, 8, device=device)
    for _ in range(200):
        loss = run(x).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return float(loss)


class Slow(torch.utils.data.Dataset[Tensor]):
    """Each item takes 2 ms, unless it is at hand."""

    def __init__(self, at_hand: bool) -> None:
        self.at_hand = at_hand

    def __len__(self) -> int:
        return 1500

    def __getitem__(self, index: int) -> Tensor:
        if not self.at_hand:
            time.sleep(0.002)
        return torch.full((64,), index / 1500)


def data_loading(compile: Compile, changed: bool, device: str) -> float:
    run = compile(nn.Linear(64, 64, device=device))
    with torch.no_grad():
        run(torch.ones(16, 64, device=device))
        loader = torch.utils.data.DataLoader(Slow(changed), batch_size=16)
        for x in loader:
            run(x.to(device))
    return float(len(loader))


def matmul_bound(compile: Compile, changed: bool, device: str) -> float:
    """Nothing helps: all time is in products of matrices of which each has been compiled."""
    torch.manual_seed(0)
    n, dtype = (8192, torch.bfloat16) if device == "cuda" else (1024, torch.float32)
    weight = torch.randn(n, n, device=device, dtype=dtype) / n**0.5
    run = compile(lambda x: x.mm(weight).mm(weight).mm(weight))
    x = torch.randn(n, n, device=device, dtype=dtype)
    for _ in range(60):
        y = run(x)
    return float(y.abs().mean())


def cold_caches(compile: Compile, changed: bool, device: str) -> float:
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8), nn.Softmax(1)).to(device)
    for layer in model:
        if hasattr(layer, "weight"):
            nn.init.ones_(layer.weight)
    with torch.no_grad():
        return float(compile(model)(torch.ones(4, 8, device=device)).sum())


class Counting(nn.Module):
    """Counts its calls, in an attribute or in a buffer."""

    def __init__(self, in_buffer: bool) -> None:
        super().__init__()
        self.calls: Any = 0
        if in_buffer:
            del self.calls
            self.register_buffer("calls", torch.tensor(0.0), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        self.calls = self.calls + 1
        return x.mm(x) * self.calls


def recompiling_each_call(compile: Compile, changed: bool, device: str) -> float:
    torch._dynamo.config.recompile_limit = 100
    torch._dynamo.config.automatic_dynamic_shapes = False
    run, x = compile(Counting(changed).to(device)), torch.eye(8, device=device)
    return float(sum(run(x).sum() for _ in range(12)))


def printing(compile: Compile, changed: bool, device: str) -> float:
    def blocks(x: Tensor) -> Tensor:
        for _ in range(10):
            x = (x * 1.5).cos()
            print("block")
        return x

    if changed:
        torch._dynamo.config.reorderable_logging_functions.add(print)
    run, x = compile(blocks), torch.ones(64, device=device)
    for _ in range(60_000):
        y = run(x)
    return float(y.sum())


def logging_in_a_block(compile: Compile, changed: bool, device: str) -> float:
    def blocks(x: Tensor) -> Tensor:
        for _ in range(10):
            x = (x * 1.5).cos()
            if not changed:
                log.debug("block")
        return x

    run, x = compile(blocks), torch.ones(64, device=device)
    for _ in range(60_000):
        y = run(x)
        if changed:
            log.debug("blocks")
    return float(y.sum())


def eager_after_the_model(compile: Compile, changed: bool, device: str) -> float:
    """Often enough that compiling what comes after, which the change needs, is little of it."""
    model, x = compile(lambda x: (x * 2).cos()), torch.ones(20_000, device=device)

    def after(y: Tensor) -> Tensor:
        for _ in range(20):
            y = (y + 1).abs() * 0.9
        return y.sum()

    finish = compile(after) if changed else after
    for _ in range(6000):
        y = finish(model(x))
    return float(y)


def python_between(compile: Compile, changed: bool, device: str) -> float:
    run, x = compile(lambda x: (x * 2).cos()), torch.ones(64, device=device)
    for _ in range(200):
        y = run(x)
        if not changed:
            sum(i * i for i in range(100_000))
    return float(y.sum())


def eager_loss(compile: Compile, changed: bool, device: str) -> float:
    """Between a small model's forward and its backward."""
    torch.manual_seed(0)
    model = nn.Linear(32, 200).to(device)
    x, y = torch.randn(64, 32, device=device), torch.arange(64, device=device)

    def loss_of(out: Tensor) -> Tensor:
        log_p = out.log_softmax(-1)
        p = log_p.exp()
        entropy = (p * log_p).sum(-1).mean()
        smooth = 0.9 * log_p.gather(1, y[:, None]).mean() + 0.1 * log_p.mean()
        return 0.01 * entropy - smooth + 1e-4 * out.logsumexp(-1).square().mean()

    step = compile(lambda x: loss_of(model(x))) if changed else None
    run = compile(model)
    for _ in range(1500):
        loss = step(x) if step is not None else loss_of(run(x))
        loss.backward()
    return float(loss)


def launch_bound(compile: Compile, changed: bool, device: str) -> float:
    """Kernels so small that the GPU waits for each of them."""
    torch.manual_seed(0)
    model = nn.Sequential(*[layer for _ in range(40) for layer in (nn.Linear(64, 64), nn.Tanh())])
    run = compile(model.to(device), **({"mode": "reduce-overhead"} if changed else {}))
    x = torch.ones(8, 64, device=device)
    with torch.no_grad():
        for _ in range(3000):
            y = run(x)
    return float(y.sum())


def float32_products(compile: Compile, changed: bool, device: str) -> float:
    """Products of matrices, exactly; TF32 rounds what it multiplies, and is faster."""
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high" if changed else "highest")
    weight = torch.rand(4096, 4096, device=device) / 2048
    run, x = compile(lambda x: x.mm(weight).mm(weight)), torch.rand(4096, 4096, device=device)
    for _ in range(100):
        y = run(x)
    return float(y.mean())


PROGRAMS = {
    "varying-lengths": Known(varying_lengths, "recompile"),
    "item-in-a-step": Known(item_between, "break"),
    "eager-optimizer": Known(eager_optimizer, "optimizer"),
    "data-loading": Known(data_loading, "data"),
    "nothing-helps": Known(matmul_bound, None),
    "cold-caches": Known(cold_caches, "cold-caches", cold=True),
    "recompiling": Known(recompiling_each_call, "recompile"),
    "printing": Known(printing, "break"),
    "logging": Known(logging_in_a_block, "break"),
    "eager-ops": Known(eager_after_the_model, "eager"),
    "python": Known(python_between, "python"),
    "eager-loss": Known(eager_loss, "loss"),
    "launch-bound": Known(launch_bound, "launch-bound", needs_cuda=True),
    "float32-products": Known(float32_products, "tf32", needs_cuda=True, is_trial=True),
}
