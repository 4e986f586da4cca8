"""Compile times of single compilations, against what torch itself writes down of each."""

from typing import Any

from proof import child
from proof.figures import Figure

LIMIT = 3  # percent: ours begins a little earlier, and includes writing torch's own figures


def compile_time(device: str) -> list[Figure]:
    """Of a forward and a backward, with empty caches.

    The oracles: the durations in ``torch._dynamo.utils.get_compilation_metrics``, and the sums that
    ``torch._dynamo.utils.compile_times`` has for the functions in which torch compiles.
    """
    return [Figure(**row) for row in child.call(measure, device)]


def measure(device: str) -> list[Figure]:
    """In a process in which nothing else is compiled, but what imports the compiler."""
    import torch
    from torch._dynamo import utils
    from torch._inductor.utils import fresh_cache

    import instrumented_backend

    def step(function: Any, width: int) -> None:
        x = torch.randn(64, width, device=device, requires_grad=True)
        torch.compile(function, backend="instrumented")(x).sum().backward()

    torch.manual_seed(0)
    layers: list[torch.nn.Module] = []
    for _ in range(4):
        layers += [torch.nn.Linear(96, 96), torch.nn.GELU(), torch.nn.LayerNorm(96)]
    model = torch.nn.Sequential(*layers, torch.nn.Softmax(-1)).to(device)
    step(lambda x: x.sin(), 8)
    torch._dynamo.reset()
    utils.clear_compilation_metrics()
    utils.compilation_time_metrics.clear()
    instrumented_backend.reset()
    with fresh_cache():
        step(model, 96)
    found = instrumented_backend.report().compile
    theirs: dict[str, float] = {"forward": 0.0, "backward": 0.0}
    for metrics in utils.get_compilation_metrics():
        theirs["forward" if metrics.is_forward else "backward"] += (metrics.duration_us or 0) / 1e6
    names, sums = utils.compile_times("csv", aggregate=True)
    times = dict(zip(names, map(float, sums), strict=True))
    functions = {
        "forward": "_compile.compile_inner",
        "backward": "backward._backward_impl",
    }
    rows = []
    for direction, function in functions.items():
        ours = getattr(found, f"{direction}_s")
        for oracle, seconds in (("its metrics", theirs[direction]), ("its sums", times[function])):
            figure = f"{direction} compilation by {oracle}, s"
            rows.append(Figure("mlp, 4 layers", figure, "cold", ours, seconds, LIMIT))
    return rows
