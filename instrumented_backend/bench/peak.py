"""A device's memory bandwidth: a large copy, measured; the datasheet's figure where it is known."""

import os
from pathlib import Path
from typing import Any

import torch

from instrumented_backend.bench.timing import measure
from instrumented_backend.records.bench import Peak

_CUDA_COPY_BYTES = 1 << 30
_CPU_COPY_BYTES = 1 << 28
_MAX_SHARE = 8  # at most one part in this many of the free memory


class NoDevice(RuntimeError):
    """There is no such device here."""


def measure_peak(device: str) -> Peak:
    """Raises `NoDevice`."""
    if device == "cpu":
        return _cpu()
    backend = getattr(torch, device, None)
    if backend is None or not backend.is_available():
        raise NoDevice(f"no {device.upper()} device here")
    properties = backend.get_device_properties(backend.current_device())
    free = backend.mem_get_info()[0]
    size = min(_CUDA_COPY_BYTES, free // _MAX_SHARE)
    gb_per_s = _copy(size, device)
    datasheet = _datasheet_gb_per_s(properties)
    one = torch.zeros(1, device=device)
    return Peak(
        device=device,
        device_name=str(properties.name),
        copy_gb_per_s=gb_per_s,
        copy_bytes=size,
        datasheet_gb_per_s=datasheet,
        datasheet_source=None if datasheet is None else "memory clock and bus width",
        cache_bytes=getattr(properties, "L2_cache_size", None) or None,
        launch_ms=measure(lambda: one.add_(1), device).ms,
    )


def _cpu() -> Peak:
    cache = cpu_cache_bytes()
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    # Larger than the cache, so that memory is measured and not the cache.
    size = min(max(_CPU_COPY_BYTES, 2 * (cache or 0)), max(free // _MAX_SHARE, 1 << 20))
    return Peak(
        device="cpu",
        device_name=_cpu_name(),
        copy_gb_per_s=_copy(size, "cpu"),
        copy_bytes=size,
        cache_bytes=cache,
    )


def _copy(size: int, device: str) -> float:
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.ones_like(source)
    # Eight-byte elements, for which every device has its fastest copy.
    source, target = (t[: size // 8 * 8].view(torch.int64) for t in (source, target))
    timing = measure(lambda: target.copy_(source), device, min_seconds=0.5)
    return 2 * 8 * source.numel() / timing.ms / 1e6


def cpu_cache_bytes() -> int | None:
    """The last level's size, as Linux reports it."""
    sizes = []
    for index in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            level = int((index / "level").read_text())
            text = (index / "size").read_text().strip()
        except (OSError, ValueError):
            continue
        if text[-1:] in ("K", "M") and text[:-1].isdigit():
            sizes.append((level, int(text[:-1]) << (10 if text[-1] == "K" else 20)))
    return max(sizes)[1] if sizes else None


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass  # not Linux's: the name below says enough
    return "cpu"


def _datasheet_gb_per_s(properties: Any) -> float | None:
    """What the memory's clock and width allow (two transfers a clock), as datasheets give it."""
    try:
        from triton.testing import get_dram_gbps

        known = float(get_dram_gbps())
    except (ImportError, RuntimeError, KeyError):
        # No Triton, or one that does not know this device's clock; torch may.
        clock_khz = getattr(properties, "memory_clock_rate", 0)
        known = 2 * clock_khz * getattr(properties, "memory_bus_width", 0) / 8 / 1e6
    return known or None
