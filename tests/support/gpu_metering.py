"""What the op meter's native part saw of the GPU that is not there."""

import time
from typing import Any

from fake_gpu import FakeGpu
from metering import CERTAIN

from instrumented_backend.observe.ops.gpu_seen import GpuSeen
from instrumented_backend.observe.ops.observed import Copied


def seen(lib: Any) -> GpuSeen:
    return Copied.of(lib).gpu


def ms_of(found: GpuSeen, key: int, chosen: int = CERTAIN) -> tuple[float, float]:
    """How many calls were seen, the very first apart, and how long the GPU took for them."""
    (row,) = [row for row in found.calls if row.key == key]
    return row.seen[chosen].n, row.seen[chosen].op_ns / 1e6


def first_ms(found: GpuSeen, key: int) -> float:
    (row,) = [row for row in found.calls if row.key == key]
    return float(row.first_ns / 1e6)


def catch_up(lib: Any, gpu: FakeGpu) -> None:
    """How far it is behind is known by when an event was last asked for in vain."""
    time.sleep(0.001)
    seen(lib)
    gpu.synchronize()
