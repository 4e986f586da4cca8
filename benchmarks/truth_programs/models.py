"""What the programs train and ask: small, so that a step takes some milliseconds on a CPU."""

from collections.abc import Iterator

import torch
from torch import nn

WIDTH = 128
BATCH = 64


class Block(nn.Module):
    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Blocks(nn.Module):
    """With ``broken``, a graph break after each block: one graph, called once for each of them."""

    def __init__(self, count: int, width: int = WIDTH, broken: bool = False) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(count))
        self.broken = broken

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
            if self.broken:
                torch._dynamo.graph_break()
        return x


def batches(
    device: str, count: int = 4, size: int = BATCH, width: int = WIDTH
) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(size, width, generator=generator).to(device) for _ in range(count)]


def forever(items: list[torch.Tensor]) -> Iterator[torch.Tensor]:
    while True:
        yield from items


def loss_of(output: torch.Tensor) -> torch.Tensor:
    """Eager: three ops and as many nodes."""
    return output.square().mean() * 0.1


def eager_work(x: torch.Tensor) -> torch.Tensor:
    """Six ops, of half a millisecond."""
    y = x
    for _ in range(2):
        y = torch.tanh(y @ x.t() @ x)
    return y


def plain_sgd(model: nn.Module, state: dict[nn.Parameter, torch.Tensor], lr: float = 1e-3) -> None:
    """An optimizer as people write it: a loop over the parameters, state made when first used."""
    for p in model.parameters():
        if p.grad is None:
            continue
        if p not in state:
            state[p] = torch.zeros_like(p)
        state[p].mul_(0.9).add_(p.grad)
        p.data.add_(state[p], alpha=-lr)
        p.grad = None
