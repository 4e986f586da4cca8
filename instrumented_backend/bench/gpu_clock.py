"""Times of kernels by the GPU's own clock, as torch.profiler has them: without their launches.

Each launch is made inside a span of the host. What it started on the GPU is found by correlation
ids, and the times added up: kernels, copies and fills.
"""

import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import torch

from instrumented_backend.records import Note, notes
from instrumented_backend.records.bench import Timing, timing_of
from instrumented_backend.torch_compat import profilers
from instrumented_backend.traces.launches import find_launches
from instrumented_backend.traces.spans import launched_in
from instrumented_backend.traces.trace_file import read_trace

WARM, COLD = "warm", "cold"
SCRATCH_BYTES = 1 << 28  # of what empties the L2 cache: larger than any
_SPAN = "instrumented_backend launch "
_SETTLING = 3  # first launches tune, load and allocate
_FEWEST, _MOST, _ENOUGH_MS = 10, 100, 100.0  # launches, and how long they may take together
_BATCH, _BATCHES = 20, 20
_BUSY = 4  # times the scratch is filled, while the host queues a batch


def span(name: str) -> AbstractContextManager[None]:
    """Around one launch, for `times_of`."""
    mark: AbstractContextManager[None] = profilers.record_function_fast()(_SPAN + name)
    return mark


def times_of(action: Callable[[], None]) -> dict[str, list[float]]:
    """Runs it under a profiler: ms of what each span launched, by the span's name, in their order.

    Empty where the profiler saw nothing of any span: another tool may hold CUPTI.
    """
    torch.cuda.synchronize()
    with profilers.device_profile() as profile:
        action()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory(prefix="instrumented_backend-") as folder:
        path = str(Path(folder) / "launches.json")
        profile.export_chrome_trace(path)
        trace = read_trace(path, wanted=lambda name: name.startswith(_SPAN))
    activities, spans = trace.activities, trace.spans
    owner = launched_in(trace, find_launches(trace), spans)
    owned = owner >= 0
    length = (activities.end - activities.start)[owned]
    time_ns = np.bincount(owner[owned], weights=length, minlength=len(spans.start))
    found: dict[str, list[float]] = {}
    for number in np.argsort(spans.start, kind="stable").tolist() if owned.any() else ():
        name = trace.names[spans.name[number]].removeprefix(_SPAN)
        found.setdefault(name, []).append(float(time_ns[number]) / 1e6)
    return found


def scratch() -> torch.Tensor:
    """Memory that, once filled, leaves nothing else in the L2 cache."""
    return torch.empty(SCRATCH_BYTES // 4, dtype=torch.int32, device="cuda")


def time_alone(function: Callable[[], object]) -> tuple[Timing, Timing | None, list[Note]]:
    """Launched again and again: with what the launch before left in the caches, and after the L2
    cache was emptied. The second is None where only events could be used; a note says so."""
    for _ in range(_SETTLING):
        function()
    filler = scratch()
    estimate_ms = _events_ms(function, 5)
    count = max(_FEWEST, min(_MOST, round(_ENOUGH_MS / max(estimate_ms, 1e-3))))

    def launches() -> None:
        for _ in range(count):
            with span(WARM):
                function()
        for _ in range(count):
            filler.zero_()
            with span(COLD):
                function()

    found = times_of(launches)
    if WARM in found and COLD in found:
        return timing_of(found[WARM]), timing_of(found[COLD]), []
    samples = []
    for _ in range(_BATCHES):
        for _ in range(_BUSY):
            filler.zero_()
        samples.append(_events_ms(function, _BATCH))
    return timing_of(samples), None, [_BY_EVENTS]


_BY_EVENTS = Note(
    notes.TIMED_BY_EVENTS,
    f"by events around {_BATCH} launches, as the profiler saw nothing of them: with the gaps "
    "between launches",
)


def _events_ms(function: Callable[[], object], count: int) -> float:
    """Of one of ``count`` launches between two events."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(count):
        function()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / count
