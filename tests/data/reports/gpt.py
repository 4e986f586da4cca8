"""Train a small GPT, with what trainings often have: a check of the loss, clipping, a last batch."""

import torch
from torch import nn
from torch.nn import functional

import instrumented_backend  # noqa: F401  # makes the name known where it is not installed

VOCABULARY, WIDTH, HEADS, LAYERS, BATCH, LENGTH = 1_000, 256, 8, 4, 16, 128


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        heads = self.qkv(self.norms[0](x)).view(batch, length, 3, HEADS, -1)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        attention = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(attention.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(functional.gelu(self.up(self.norms[1](x))))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(LENGTH, device=tokens.device))
        logits = self.head(self.blocks(x))
        loss = functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        if not torch.isfinite(loss):  # which way to go depends on the data
            raise ValueError("the loss is not a number")
        return loss


device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
model = GPT().to(device)
step = torch.compile(model, backend="instrumented", dynamic=False)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
data = torch.randint(0, VOCABULARY, (40 * BATCH + BATCH // 2, LENGTH), device=device)
for epoch in range(5):
    for tokens in data.split(BATCH):  # the last batch is half as large
        loss = step(tokens)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    print(f"epoch {epoch}: loss {loss.item():.3f}")
