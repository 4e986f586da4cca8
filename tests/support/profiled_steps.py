"""Steps of a compiled function under torch.profiler."""

from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile


def profiled_steps(backend: str, device: str) -> tuple[Any, list[Any]]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()).to(device)
    compiled = torch.compile(model, backend=backend)
    x = torch.randn(4, 8, device=device)
    for _ in range(3):
        compiled(x).sum().backward()
    activities = [ProfilerActivity.CPU]
    if device == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as prof:
        for _ in range(5):
            compiled(x).sum().backward()
        if device == "cuda":
            torch.cuda.synchronize()
    return prof, list(prof.events())
