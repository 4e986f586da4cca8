"""What it takes to see an op, in loops as programs have them, against what is taken off for that.

A slice of a loop, as windows see one: its ops over its time, without what seeing them takes. The
same loop with no window open tells what that should be.
"""

import functools
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

SLICE_S, BETWEEN_S, SLICES = 0.01, 0.02, 30
REGION, ITERATION, END = 2, 3, 4


class Seen(NamedTuple):
    """Of a loop: what seeing an op takes, and how many there are by slices, over how many are."""

    us: float
    off_by: float


def seeing_an_op() -> float:
    """Microseconds longer with a window than without, on average over loops of several kinds."""
    return statistics.mean(seen.us for seen in _all_seen())


def seeing_an_op_error() -> float:
    """Percent of a loop's ops that slices see too many or too few, of the median loop."""
    return 100 * statistics.median(abs(seen.off_by) for seen in _all_seen())


def _all_seen() -> list[Seen]:
    from instrumented_backend.observe.native import build as native

    lib = native.load()
    lib.op_meter_begin(0, 0)
    try:
        return [_seen(lib, iteration) for iteration in _loops()]
    finally:
        lib.op_meter_clear()


def _loops() -> Iterator[Callable[[], object]]:
    """An iteration each: of small ops and of larger ones, with and without backward."""
    import torch
    from torch.nn import functional
    from truth_programs.models import Blocks, loss_of, plain_sgd

    width = 16
    x = torch.randn(8, width)
    labels = torch.randint(0, width, (8,))
    model = torch.nn.Sequential(
        torch.nn.LayerNorm(width), torch.nn.Linear(width, width), torch.nn.GELU()
    )
    blocks, batch = Blocks(4), torch.randn(16, 128)
    state: dict[torch.nn.Parameter, torch.Tensor] = {}

    def train() -> None:
        model(x).square().mean().backward()

    def train_blocks() -> None:
        loss_of(blocks(batch)).backward()
        plain_sgd(blocks, state)

    @torch.no_grad()
    def infer() -> float:
        return blocks(batch).argmax(-1).float().mean().item()

    train()
    train_blocks()
    yield lambda: model(x).softmax(-1).amax().item()
    yield lambda: functools.reduce(lambda y, _: y * 1.0001, range(8), x).sum().item()
    yield train
    yield lambda: torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    yield lambda: functional.cross_entropy(model(x), labels).item()
    yield train_blocks
    yield infer
    yield lambda: [x @ x.T for _ in range(8)]
    yield lambda: [x.view(-1).unsqueeze(0).t().expand(width * 8, 2) for _ in range(4)]


def _seen(lib: Any, iteration: Callable[[], object]) -> Seen:
    ops = _ops_of(lib, iteration)

    def loop(times: int) -> float:
        start_s = time.perf_counter()
        for _ in range(times):
            iteration()
        return time.perf_counter() - start_s

    _go_on(iteration)
    times = int(SLICE_S / min(loop(1) for _ in range(9)))
    longer_s, off_by = [], []
    for _ in range(SLICES):
        _go_on(iteration)
        unseen_s = loop(times)
        lib.op_meter_clear()
        _region(lib, REGION)
        _go_on(iteration)
        lib.op_meter_open(False)
        longer_s.append(loop(times) - unseen_s)
        lib.op_meter_close()
        _region(lib, END)
        (slice_,) = (kind.slices[0].seen for kind in _kinds(lib) if kind.to == END)
        off_by.append(slice_.ops / (1e-9 * slice_.ns) / (ops * times / unseen_s) - 1)
    us = 1e6 * statistics.median(longer_s) / (ops * times)
    return Seen(us, statistics.median(off_by))


def _go_on(iteration: Callable[[], object]) -> None:
    until_s = time.perf_counter() + BETWEEN_S
    while time.perf_counter() < until_s:
        iteration()


def _region(lib: Any, key: int) -> None:
    lib.op_meter_enter(key)
    lib.op_meter_leave(key)


def _ops_of(lib: Any, iteration: Callable[[], object]) -> int:
    """An iteration's own ops, by a window that sees all of it."""
    lib.op_meter_clear()
    lib.op_meter_open(False)
    for region in (ITERATION, END):
        _region(lib, region)
        iteration()
    lib.op_meter_close()
    wholes = [part.seen for kind in _kinds(lib) if kind.to == END for part in kind.wholes]
    return int(sum(part.ops for part in wholes))


def _kinds(lib: Any) -> list[Any]:
    from instrumented_backend.observe.ops.observed import Copied

    return Copied.of(lib).observed([], whole=False, elapsed_ns=0).kinds
