"""Three forwards of a small ConvNeXt with random weights, as CI gates them."""

import torch
from transformers import ConvNextConfig, ConvNextModel

CALLS = 3


def main() -> None:
    torch.manual_seed(0)
    config = ConvNextConfig(depths=[1, 1], hidden_sizes=[8, 16], num_stages=2, patch_size=4)
    model = ConvNextModel(config).eval()
    compiled = torch.compile(model, backend="instrumented")
    with torch.no_grad():
        for _ in range(CALLS):
            compiled(torch.randn(2, 3, 32, 32))


if __name__ == "__main__":
    main()
