"""A small GPT, trained on made-up text; what `instrumented-backend demo` runs."""

import sys

import torch
from torch import nn
from torch.nn import functional

VOCABULARY, WIDTH, HEADS, LAYERS, BATCH, LENGTH = 128, 64, 4, 2, 8, 32


class Block(nn.Module):
    """Attention and a feed-forward layer, both with a residual; (batch, length, width) → same."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        heads = self.qkv(self.norms[0](x)).view(batch, length, 3, HEADS, -1)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        attention = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(attention.transpose(1, 2).reshape(batch, length, WIDTH))
        y: torch.Tensor = x + self.down(functional.gelu(self.up(self.norms[1](x))))
        return y


class SmallGPT(nn.Module):
    """Next-character loss of (batch, length) tokens, with a check that the report finds out."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(LENGTH, device=tokens.device))
        logits = self.head(self.blocks(x))
        loss = functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        if torch.isnan(loss):  # a graph break: which way to go depends on the data
            raise ValueError("the loss is not a number")
        return loss


def train(steps: int, device: str | None = None) -> None:
    """Train for ``steps`` steps; the report comes when the process ends."""
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    model = SmallGPT().to(device)
    compiled = torch.compile(model, backend="instrumented")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    print(f"training a {LAYERS}-layer GPT on {device}; the first step compiles it", file=sys.stderr)
    text = torch.arange(BATCH * LENGTH, device=device).view(BATCH, LENGTH) % 7
    for step in range(steps):
        loss = compiled(text)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step + 1}: loss {loss.item():.3f}")
