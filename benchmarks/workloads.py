"""Training steps to measure with: what people run, small enough to repeat."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

Step = Callable[[], torch.Tensor]
Backend = str | Callable[..., Any]


class Block(nn.Module):
    """A transformer block with a feed-forward layer; (batch, length, width) → same."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        query, key, value = (
            self.qkv(self.norms[0](x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        )
        attention = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(attention.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norms[1](x))))


class Net(nn.Module):
    """A language model with a graph break in its loop over blocks."""

    def __init__(self, width: int = 512, heads: int = 8, layers: int = 4) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1000, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.head = nn.Linear(width, 1000)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
            torch._dynamo.graph_break()
        logits = self.head(x)
        return functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())


def net(device: str, *backends: Backend) -> list[Step]:
    """Launch-bound on a large GPU: batch 8 × 256, bfloat16 autocast, AdamW."""
    torch.manual_seed(0)
    model = Net().to(device)
    tokens = torch.randint(0, 1000, (8, 256), device=device)
    return _training(model, backends, device, lambda compiled: compiled(tokens), autocast=True)


def gpt2(device: str, *backends: Backend) -> list[Step]:
    """GPT-2 with 12 layers of 256, batch 2 × 64, AdamW."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(n_layer=12, n_embd=256, n_head=8, vocab_size=1000, n_positions=64)
    model = GPT2LMHeadModel(config).to(device)
    tokens = torch.randint(0, 1000, (2, 64), device=device)
    return _training(
        model,
        backends,
        device,
        lambda compiled: compiled(input_ids=tokens, labels=tokens).loss,
        autocast=False,
    )


def _training(
    model: nn.Module,
    backends: Iterable[Backend],
    device: str,
    loss_of: Callable[[nn.Module], torch.Tensor],
    autocast: bool,
) -> list[Step]:
    """A step for each backend, all of one model and one optimizer.

    Two models that do the same differ in speed by a percent or two, for where their memory lies.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def make(backend: Backend) -> Step:
        compiled = torch.compile(model, backend=backend)

        def step() -> torch.Tensor:
            with torch.autocast(device, dtype=torch.bfloat16, enabled=autocast):
                loss = loss_of(compiled)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach()

        return step

    return [make(backend) for backend in backends]
