"""Times of a graph's kernels where they run: in calls of the whole graph, on a GPU.

There a kernel finds in the L2 cache what those before it left. What was there before the call is
not known here: with inputs too large to stay there beside all else that a program does, it is
emptied before each call.
"""

import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from instrumented_backend.bench import stand_ins
from instrumented_backend.bench.gpu_clock import scratch, span, times_of
from instrumented_backend.bench.walk import tensors_in
from instrumented_backend.records.bench import Timing, timing_of

_SETTLING = 3
_FEWEST, _MOST, _ENOUGH_S = 5, 20, 0.5  # calls, and how long they may take together
_SHARE = 4  # inputs of more than one part in this many of the cache are not there any more


def time_in_place(
    module: ModuleType, kernels: list[str], course: list[tuple[int, str]], arguments: list[Any]
) -> dict[int, Timing]:
    """By the numbers of the launches; ``course`` has the number and the name of each in a call.

    Empty where a call takes another course than that, or the profiler saw no kernel.
    """
    position = 0
    strayed = False

    def launched(
        name: str,
        kernel: Any,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        nonlocal position, strayed
        number, expected = course[position] if position < len(course) else (-1, "")
        position += 1
        if name != expected:
            strayed = True
        with span(str(number)):
            return function(*args, **kwargs)

    filler = scratch() if _is_large(arguments) else None

    def calls(count: int) -> None:
        nonlocal position
        for _ in range(count):
            position = 0
            if filler is not None:
                filler.zero_()
            module.call(list(arguments))

    undo = stand_ins.install(module, kernels, launched)
    try:
        calls(_SETTLING)
        torch.cuda.synchronize()
        start_s = time.perf_counter()
        calls(1)
        torch.cuda.synchronize()
        call_s = time.perf_counter() - start_s
        count = max(_FEWEST, min(_MOST, round(_ENOUGH_S / call_s)))
        found = times_of(lambda: calls(count))
    finally:
        undo()
    if strayed:
        return {}
    return {int(number): timing_of(samples) for number, samples in found.items()}


def _is_large(arguments: list[Any]) -> bool:
    """Would the rest of a program leave next to nothing of them in the cache?"""
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    storages = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for tensor in tensors_in(arguments)
    }
    return sum(storages.values()) > properties.L2_cache_size / _SHARE
