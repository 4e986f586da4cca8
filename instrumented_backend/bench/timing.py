"""Times of one call: Python's ``timeit`` on CPU; on GPUs the GPU's own clock, or ``do_bench``."""

import time
import timeit
from collections.abc import Callable
from typing import Any

import torch

from instrumented_backend.records.bench import ALONE, BenchRecord, Timing, timing_of

MIN_SECONDS = 0.2
MIN_SAMPLES = 5
_MAX_SECONDS = 5.0  # for those samples, where one takes long
_BLOCK_SECONDS = 1e-3  # of calls in a sample, so that the clock's own cost is nothing
_WARM_UP = 2


def measure_kernel(
    record: BenchRecord,
    function: Callable[[], Any],
    device: str,
    restore: Callable[[], None] | None = None,
    min_seconds: float = MIN_SECONDS,
) -> None:
    """Put the times of one launch, made alone, into its record; as `measure`, but for CUDA.

    There ``timing`` is the warm one, by the GPU's own clock; ``cold`` is beside it.
    """
    record.timed = ALONE
    if device != "cuda":
        record.timing = measure(function, device, restore, min_seconds)
        return
    from instrumented_backend.bench.gpu_clock import time_alone

    record.warm, record.cold, said = time_alone(function)
    record.timing = record.warm
    record.add_notes(*said)
    if restore is not None:
        restore()


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
        return _on_cpu(function, restore, min_seconds)
    from triton.testing import do_bench

    samples = do_bench(function, return_mode="all")
    if restore is not None:
        restore()
    return timing_of([float(sample) for sample in samples])


def _on_cpu(
    function: Callable[[], Any], restore: Callable[[], None] | None, min_seconds: float
) -> Timing:
    """Python's own timer. A sample is one call where there is something to restore."""
    timer = timeit.Timer("f()", setup="r()", globals={"f": function, "r": restore or (lambda: 0)})
    for _ in range(_WARM_UP):
        timer.timeit(1)
    number = 1
    if restore is None:
        while (seconds := timer.timeit(number)) < _BLOCK_SECONDS:
            number = max(2 * number, round(number * _BLOCK_SECONDS / max(seconds, 1e-9)))
    samples: list[float] = []
    start = time.perf_counter()
    while True:
        samples.append(1e3 * timer.timeit(number) / number)
        passed = time.perf_counter() - start
        if passed >= (min_seconds if len(samples) >= MIN_SAMPLES else _MAX_SECONDS):
            break
    if restore is not None:
        restore()
    return timing_of(samples)


def synchronize(device: str) -> None:
    """Wait for the device, so that its errors come up here."""
    if device != "cpu":
        getattr(torch, device).synchronize()
