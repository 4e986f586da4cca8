"""Times of one call: torch's own timer on CPU, Triton's ``do_bench`` on GPUs."""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.benchmark import Timer

from instrumented_backend.bench.records import Timing, timing_of

MIN_SECONDS = 0.2
_MIN_SAMPLES = 5
_WARM_UP = 3
_MAX_SAMPLES = 100_000


def measure(
    function: Callable[[], Any],
    device: str,
    restore: Callable[[], None] | None = None,
    min_seconds: float = MIN_SECONDS,
) -> Timing:
    """Time ``function`` on the kind of device where it computes.

    ``restore`` undoes what a call changes in its inputs. On CPU it is called, untimed, before each
    call; on a GPU after the last one: there the values that a kernel computes with don't change
    its time, and a copy between the calls would be timed with them.
    """
    if device == "cpu":
        if restore is not None:
            return _each_call(function, restore, min_seconds)
        timer = Timer("f()", globals={"f": function}, num_threads=torch.get_num_threads())
        for _ in range(_WARM_UP):
            function()
        return timing_of([1e3 * t for t in timer.blocked_autorange(min_run_time=min_seconds).times])
    from triton.testing import do_bench

    samples = do_bench(function, return_mode="all")
    if restore is not None:
        restore()
    return timing_of([float(sample) for sample in samples])


def _each_call(
    function: Callable[[], Any], restore: Callable[[], None], min_seconds: float
) -> Timing:
    for _ in range(_WARM_UP):
        restore()
        function()
    samples: list[float] = []
    clock = time.perf_counter_ns
    end = clock() + int(min_seconds * 1e9)
    while len(samples) < _MIN_SAMPLES or (clock() < end and len(samples) < _MAX_SAMPLES):
        restore()
        start = clock()
        function()
        samples.append((clock() - start) / 1e6)
    restore()
    return timing_of(samples)


def synchronize(device: str) -> None:
    """Wait for the device, so that its errors come up here."""
    if device != "cpu":
        getattr(torch, device).synchronize()
