"""Three training steps of a small GPT-2 with random weights, as CI gates them."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

STEPS = 3


def main() -> None:
    torch.manual_seed(0)
    config = GPT2Config(n_layer=2, n_head=2, n_embd=32, vocab_size=128, n_positions=32)
    config.use_cache = False
    model = GPT2LMHeadModel(config)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = torch.compile(model, backend="instrumented")
    for _ in range(STEPS):
        tokens = torch.randint(0, 128, (2, 16))
        loss = step(input_ids=tokens, labels=tokens).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
