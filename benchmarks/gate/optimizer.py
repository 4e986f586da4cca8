"""A training step whose optimizer is compiled, too."""

import torch

STEPS = 100


def main() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    forward = torch.compile(model, backend="instrumented")
    step = torch.compile(optimizer.step, backend="instrumented")
    for _ in range(STEPS):
        forward(torch.randn(8, 16)).square().mean().backward()
        step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
