"""What a compiled call of 8 elements costs."""

import random
import sys
import time
from collections.abc import Callable

import click

from proof.figures import Cost, cost_of


def tiny_call(device: str, rounds: int) -> list[Cost]:
    """Microseconds over Inductor's, ours and a naive wrapper's; blocks of 500 calls in turn."""
    import torch

    from proof.naive import record_function

    backends = {
        "inductor": "inductor",
        "instrumented": "instrumented",
        "record_function": record_function,
    }
    functions = {}
    for name, backend in backends.items():
        # A function of its own for each: Dynamo keeps compiled code by code object.
        namespace: dict[str, object] = {}
        exec(compile("def f(x): return x + 1", name, "exec"), namespace)
        functions[name] = torch.compile(namespace["f"], backend=backend)  # type: ignore[call-overload]
    x = torch.ones(8, device=device)
    times: dict[str, list[float]] = {name: [] for name in functions}
    with torch.no_grad():
        for function in functions.values():
            for _ in range(2000):
                function(x)
        order = list(functions)
        with click.progressbar(range(rounds), label="calls", file=sys.stderr) as bar:
            for _ in bar:
                random.shuffle(order)
                for name in order:
                    times[name].append(microseconds_a_call(functions[name], x))
                    if device == "cuda":
                        torch.cuda.synchronize()
    rows = []
    for name, limit in (("instrumented", 0.4), ("record_function", None)):
        over = [a - b for a, b in zip(times[name], times["inductor"], strict=True)]
        rows.append(cost_of(f"call of 8 elements, {device}: {name}", over, "us over", limit))
    return rows


def microseconds_a_call(function: Callable[[object], object], x: object, calls: int = 500) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        function(x)
    return (time.perf_counter() - start) / calls * 1e6
