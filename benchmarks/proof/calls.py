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
    """Microseconds over Inductor's, of pairs of functions: ours, once the window at the start has
    closed; the least that can be in a graph's place; and a naive wrapper's."""
    from proof.naive import record_function, with_partial

    return [
        cost_of(f"call of 8 elements, {device}: {name}", over, "us over", limit)
        for name, backend, limit in (
            ("instrumented", "instrumented", 0.4),
            ("functools.partial", with_partial, None),
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

    def timed(number: int) -> float:
        taken = microseconds_a_call(functions[number], x)
        if device == "cuda":
            torch.cuda.synchronize()
        return taken

    with torch.no_grad():
        order = list(range(len(functions)))
        for turn in itertools.count():
            for number in order:
                timed(number)
            if turn and not (backend == "instrumented" and _sees_all()):
                break
        with click.progressbar(range(rounds), label=f"calls, {name}", file=sys.stderr) as bar:
            for _ in bar:
                random.shuffle(order)
                for number in order:
                    times[number].append(timed(number))
    return [
        statistics.median(ours - theirs for theirs, ours in zip(*pair, strict=True))
        for pair in zip(times[::2], times[1::2], strict=True)
    ]


def _sees_all() -> bool:
    """Is the window open that sees what follows a compilation?"""
    from instrumented_backend import backend

    return bool(backend._session.ops._is_warm_up)


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
