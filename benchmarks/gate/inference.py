"""Two compiled functions without gradients; sizes change once, and some ops stay eager."""

import torch

CALLS = 100


@torch.compile(backend="instrumented")
def normalized(x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean()) / (x.std() + 1e-5)


@torch.compile(backend="instrumented")
def scores(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x @ y, dim=-1)


def main() -> None:
    torch.manual_seed(0)
    with torch.no_grad():
        for call in range(CALLS):
            x = torch.randn(8 if call < CALLS // 2 else 12, 16)
            torch.topk(scores(normalized(x), torch.eye(16)), 2)


if __name__ == "__main__":
    main()
