"""A short program that breaks, recompiles and runs eager ops, in the same way in each run."""

import torch

CALLS = 200


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layer(x).relu()
        if x.sum() > 0:  # depends on data
            x = x + 1
        return self.layer(x).sum()


def main() -> None:
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters())
    step = torch.compile(model, backend="instrumented", dynamic=False)
    for call in range(CALLS):
        loss = step(torch.ones(8 if call % 10 else 4, 16))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
