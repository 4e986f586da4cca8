"""What a compiled call of 8 elements costs."""

import itertools
import random
import statistics
import sys
import time
import types
from collections.abc import Callable
from typing import Any

import click

from proof.figures import Cost, cost_of

# Functions of each backend. Two that do the same differ by some percent of a call, for where their
# objects happen to lie: more of them tell more than more rounds.
INSTANCES = 16
# Of one function at a time, as a loop calls it: some milliseconds, so that most blocks are over
# before the machine does something else.
CALLS = 300


def tiny_call(device: str, rounds: int) -> list[Cost]:
    """Microseconds over Inductor's, ours and a naive wrapper's, of pairs of functions."""
    from proof.naive import record_function

    return [
        cost_of(f"call of 8 elements, {device}: {name}", over, "us over", limit)
        for name, backend, limit in (
            ("instrumented", "instrumented", 0.4),
            ("record_function", record_function, None),
        )
        for over in [_over_inductor(backend, device, rounds, name)]
    ]


def _over_inductor(backend: Any, device: str, rounds: int, name: str) -> list[float]:
    """For each pair of functions, the median difference over rounds of short blocks, in turn."""
    import torch

    functions = [_compiled(kind) for kind in ["inductor", backend] * INSTANCES]
    x = torch.ones(8, device=device)
    times: list[list[float]] = [[] for _ in functions]
    with torch.no_grad():
        for function in functions:
            for _ in range(500):
                function(x)
        order = list(range(len(functions)))
        with click.progressbar(range(rounds), label=f"calls, {name}", file=sys.stderr) as bar:
            for _ in bar:
                random.shuffle(order)
                for number in order:
                    times[number].append(microseconds_a_call(functions[number], x))
                    if device == "cuda":
                        torch.cuda.synchronize()
    return [
        statistics.median(ours - theirs for theirs, ours in zip(*pair, strict=True))
        for pair in zip(times[::2], times[1::2], strict=True)
    ]


def _add_one(x: Any) -> Any:
    return x + 1


_numbers = itertools.count(1)


def _compiled(backend: Any) -> Callable[[object], object]:
    """A function of its own: Dynamo keeps compiled code by code object.

    Not one from a string, which Dynamo would compile as part of a function that all of them share.
    """
    import torch

    code = _add_one.__code__.replace(co_name=f"add_one_{next(_numbers)}")
    function = types.FunctionType(code, {"__builtins__": __builtins__})
    compiled: Callable[[object], object] = torch.compile(function, backend=backend)
    return compiled


def microseconds_a_call(function: Callable[[object], object], x: object) -> float:
    start = time.perf_counter()
    for _ in range(CALLS):
        function(x)
    return (time.perf_counter() - start) / CALLS * 1e6
