"""Training steps of small real architectures, for figures to be read from."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

BATCHES = 48  # times those of the tests: a profiler adds a microsecond to each op


@dataclass
class Training:
    """A model, and what a step of it is; the step takes the model as compiled by whomever."""

    model: Any
    step: Callable[[Any], None]

    def steps(self, compiled: Any, count: int) -> None:
        for _ in range(count):
            self.step(compiled)


def training(name: str, device: str) -> Training:
    """One of `oracles/architectures.py`, with random weights from a fixed seed."""
    import torch
    from oracles import architectures

    torch.manual_seed(0)
    model, inputs = architectures.ALL_ARCHITECTURES[name]()
    model = model.to(device)
    inputs = {
        key: value.to(device).repeat(BATCHES, *[1] * (value.ndim - 1))
        for key, value in inputs.items()
    }
    # One op for all parameters: of many small ones, a profiler would time mostly itself.
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def step(compiled: Any) -> None:
        compiled(**inputs).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return Training(model, step)
