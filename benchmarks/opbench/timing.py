"""Times of several functions that do the same, taken alternately.

On a GPU each runs as a CUDA graph, so that launching hides in none, with the L2 cache flushed
before each replay. On a CPU they are called as they are.
"""

import statistics
from collections.abc import Callable
from typing import Any

import torch

from opbench.results import Timing

Function = Callable[[], Any]

_ROUNDS = {"cpu": 9, "cuda": 3}  # blocks of each function in one repeat, where they fit into
_REPEAT_MS = 1500
_BLOCK_MS = 4
_GPU_WARMUP_MS, _GPU_BLOCK_MS = 2, 10
_SLOWER_IN_GRAPH = 0.95


def time_all(functions: dict[str, Function], repeats: int, device: str) -> dict[str, Timing]:
    """Microseconds of one call of each: the median over repeats of each repeat's median."""
    if device == "cuda":
        functions = {name: in_cuda_graph(function) for name, function in functions.items()}
    else:
        for function in functions.values():
            function()  # and its memory is there
    rounds = _rounds(functions, device)
    medians: dict[str, list[float]] = {name: [] for name in functions}
    everything: dict[str, list[float]] = {name: [] for name in functions}
    order = list(functions)
    for _ in range(repeats):
        found: dict[str, list[float]] = {name: [] for name in functions}
        for _ in range(rounds):
            for name in order:
                found[name] += _block_us(functions[name], device)
            order.reverse()  # so that none always follows the same
        for name, times in found.items():
            medians[name].append(statistics.median(times))
            everything[name] += times
    return {
        name: Timing(statistics.median(medians[name]), *_quartiles(everything[name]))
        for name in functions
    }


def add_times_outside(
    functions: dict[str, Function], timings: dict[str, Timing], device: str
) -> None:
    """Fill in ``outside_graph_us`` where a call takes less time as it is than in a CUDA graph.

    A graph saves the launch, and so is slower only where something else runs in it: a copy in a
    graph is the driver's, a quarter slower on an H100 than the kernel that copies outside.
    """
    for name, timing in timings.items():
        us = statistics.median(_block_us(functions[name], device))
        if us < _SLOWER_IN_GRAPH * timing.median_us:
            timing.outside_graph_us = us


def _quartiles(times: list[float]) -> tuple[float | None, float | None]:
    if len(times) == 1:
        return None, None  # of a slow call in a single repeat nothing is known of the spread
    low, _, high = statistics.quantiles(times, n=4)
    return low, high


def _rounds(functions: dict[str, Function], device: str) -> int:
    block_ms = _GPU_WARMUP_MS + _GPU_BLOCK_MS if device == "cuda" else _BLOCK_MS
    once_ms = [_block_us(function, device)[0] / 1e3 for function in functions.values()]
    # A block that is as short as can be still calls twice: the first time is not counted.
    in_ms = sum(max(block_ms, 2 * time) for time in once_ms)
    return max(1, min(_ROUNDS[device], int(_REPEAT_MS / in_ms)))


def _block_us(function: Function, device: str) -> list[float]:
    """Microseconds: on a GPU of each call in the block, on a CPU their median."""
    if device == "cuda":
        from triton.testing import do_bench

        times = do_bench(function, warmup=_GPU_WARMUP_MS, rep=_GPU_BLOCK_MS, return_mode="all")
        return [1e3 * time for time in times]
    from torch._inductor.runtime.benchmarking import benchmarker

    return [1e3 * benchmarker.benchmark_cpu(function, warmup=0, rep=_BLOCK_MS)]


def in_cuda_graph(function: Function) -> Function:
    """A function that replays what ``function`` launches; raises where that can't be captured."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):  # kernels are tuned and loaded, libraries get their workspaces
            function()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        results = function()

    def replay() -> Any:
        graph.replay()
        return results  # they keep the graph's memory

    replay()
    torch.cuda.synchronize()
    return replay
