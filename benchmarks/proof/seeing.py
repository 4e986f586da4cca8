"""What it takes to see an op in a window, against what is taken off its gap for that."""

import statistics
import time
from collections.abc import Callable
from typing import Any

GAPS, PER_GAP, TURNS = 40, 80, 9


def seeing_an_op() -> float:
    """Microseconds longer with a window than without, on average over ops of several kinds."""
    return statistics.mean(took for took, _ in _seen())


def seeing_an_op_error() -> float:
    """Microseconds that more or less is taken off, of the op of which it is most."""
    return max(abs(took - taken_off) for took, taken_off in _seen())


def _seen() -> list[tuple[float, float]]:
    """Of each op what it takes, and what is taken off: medians over windows, in turn with none."""
    import torch

    from instrumented_backend.observe.native import build as native

    x, w = torch.ones(8, 8), torch.ones(8, 8)
    # With no event inside, with two, three, four and seven.
    ops: tuple[Callable[[], object], ...] = (
        lambda: torch.sin(x),
        lambda: x.t(),
        lambda: x.sum(),
        lambda: x + 1,
        lambda: torch.nn.functional.linear(x, w),
    )
    lib = native.load()
    lib.op_meter_begin(0, 0)
    found = []
    try:
        for op in ops:
            _us_an_op(lib, op, opened=True)  # what is new to the meter
            turns = [
                (_us_an_op(lib, op, opened=True), _us_an_op(lib, op, opened=False))
                for _ in range(TURNS)
            ]
            took = statistics.median(seen[0] - unseen[0] for seen, unseen in turns)
            found.append((took, statistics.median(seen[1] for seen, _ in turns)))
    finally:
        lib.op_meter_clear()
    return found


def _us_an_op(lib: Any, op: Callable[[], object], opened: bool) -> tuple[float, float]:
    """What an op takes, and what is taken off, both in microseconds."""
    lib.op_meter_clear()
    if opened:
        lib.op_meter_open(False)
    start = time.perf_counter()
    for _ in range(GAPS):
        lib.op_meter_enter(2)
        lib.op_meter_leave(2)
        for _ in range(PER_GAP):
            op()
    took_s = time.perf_counter() - start
    lib.op_meter_close()
    return 1e6 * took_s / (GAPS * PER_GAP), _taken_off_ns(lib) / 1e3 / (GAPS * PER_GAP)


def _taken_off_ns(lib: Any) -> float:
    from instrumented_backend.observe.ops.observed import Copied

    kinds = Copied.of(lib).observed([], whole=False, elapsed_ns=0).kinds
    return float(sum(kind.cost_ns for kind in kinds))
