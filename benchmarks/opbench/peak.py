"""What this machine reaches: memory bandwidth by a large copy, arithmetic by a matrix product.

Measured in the same run as the operators, and not taken from a data sheet, so that 100 % is what a
kernel can hope for here. Above it, the operator's data fitted in a cache.
"""

import torch

from opbench.results import Peak
from opbench.tensors import short_name
from opbench.timing import time_all

_REPEATS = 1  # of several rounds
_COPY_BYTES = {"cpu": 256_000_000, "cuda": 2_000_000_000}
_SIDE = {"cpu": 1024, "cuda": 8192}


def measure(device: str, dtype: torch.dtype) -> Peak:
    """A copy counts the bytes read and the bytes written; a product 2·n³ operations."""
    side = _SIDE[device]
    # Without a half-precision unit a CPU takes seconds for what a GPU does in a millisecond.
    if device == "cpu" and dtype != torch.float32:
        side //= 4
    a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    product_us = time_all({"mm": lambda: a @ b}, _REPEATS, device)["mm"].median_us
    return Peak(_bandwidth(device), 2 * side**3 / product_us / 1e3, short_name(dtype))


def _bandwidth(device: str) -> float:
    source = torch.ones(_COPY_BYTES[device] // 4, device=device)
    target = torch.empty_like(source)
    # In a CUDA graph, ``copy_`` is a copy of the driver's: 2.8 TB/s on an H200, where a kernel that
    # reads and writes the same reaches 4.2 (and ``copy_`` outside a graph, too).
    timing = time_all({"copy": lambda: torch.neg(source, out=target)}, _REPEATS, device)["copy"]
    return 2 * source.numel() * source.element_size() / timing.median_us / 1e3
