"""What the op meter's windows saw of GPUs, as it is read from the native part."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from instrumented_backend.observe.native.keys import region_key
from instrumented_backend.observe.native.structs import (
    GpuCallRow,
    GpuFunctions,
    GpuOpRow,
    GpuTimeRow,
)
from instrumented_backend.torch_compat import machine

BEHIND = 0.5  # of the time: then the host is not the limit


def time_calls(lib: Any, graph: int, device: int) -> str | None:
    """From here on the windows time that graph's calls, on its CUDA device. Or why they can't."""
    addresses = machine.cuda_functions(*GpuFunctions.NAMES.values())
    if addresses is None:
        return "this build of torch has not the functions of CUDA that are called"
    functions = GpuFunctions(*addresses)
    for backward in (False, True):
        lib.op_meter_gpu(region_key(graph, backward), device, ctypes.byref(functions))
    return None


@dataclass
class GpuOps:
    """What the GPU took for ops of one kind: all that were timed."""

    n: float = 0.0
    ns: float = 0.0

    def add(self, row: GpuOpRow) -> None:
        self.n += row.n
        self.ns += row.ns


@dataclass
class GpuSeen:
    """What windows saw of GPUs."""

    times: list[GpuTimeRow] = field(default_factory=list)
    calls: list[GpuCallRow] = field(default_factory=list)
    by_cell: dict[tuple[int, int], GpuOps] = field(default_factory=dict)  # mark and slot
    by_name: dict[str, GpuOps] = field(default_factory=dict)
    error: int = 0  # CUDA's, after which no more was seen
    problem: str | None = None  # why none is seen

    @classmethod
    def of(cls, lib: Any, rows: Callable[[Any, Any], Any]) -> "GpuSeen":
        lib.op_meter_gpu_settle()
        seen = cls(
            list(rows(lib.op_meter_gpu_times, GpuTimeRow)),
            list(rows(lib.op_meter_gpu_calls, GpuCallRow)),
            error=lib.op_meter_gpu_error(),
        )
        for row in rows(lib.op_meter_gpu_ops, GpuOpRow):
            seen.by_cell.setdefault((row.mark, row.slot), GpuOps()).add(row)
            name = ctypes.string_at(row.name).decode(errors="replace") if row.name else ""
            seen.by_name.setdefault(name, GpuOps()).add(row)
        return seen

    @property
    def is_waited_for(self) -> bool:
        """Is one behind the host for most of the time: then the host waits for it somewhere."""
        behind = sum(sum(times.behind_ns) for times in self.times)
        return behind > BEHIND * sum(sum(times.seen_ns) for times in self.times)

    def mean_ns(self, mark: int, slot: int, name: str) -> float | None:
        """What the GPU takes for such an op; None where none of its name was timed."""
        found = self.by_cell.get((mark, slot)) or self.by_name.get(name)
        return found.ns / found.n if found and found.n else None
