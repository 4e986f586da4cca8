"""How the op meter's native part tells ops apart: by gap, by name, and by their turn in the gap."""

import random
from collections import Counter
from typing import Any

import torch

from instrumented_backend.observe.native import build as native

MAX_CELLS, MAX_ORDINALS, EARLY_CALLS = 32768, 64, 3
X = torch.ones(2)
OPS = {"aten::sin": torch.sin, "aten::cos": torch.cos, "aten::tanh": torch.tanh}


def rows(op_meter: Any) -> Counter[tuple[str, int, int]]:
    array = (native.Row * op_meter.op_meter_rows(None, 0))()
    assert op_meter.op_meter_rows(array, len(array)) == len(array)
    assert all(row.ns >= 0 for row in array)
    counts = Counter({(row.name.decode(), row.gap, row.ordinal): row.count for row in array})
    assert len(counts) == len(array)  # none is there twice
    return counts


def test_passes_that_repeat_and_passes_that_differ(op_meter: Any) -> None:
    """A loop's next op is mostly the one that came next last time, and here often another."""
    draw = random.Random(0)
    passes = [draw.choices(list(OPS), k=length) for length in (1, 4, 9, 9, 250)]
    calls: Counter[int] = Counter()
    expected: Counter[tuple[str, int, int]] = Counter()
    for _ in range(200):
        key = draw.choice((3, 4))
        op_meter.op_meter_enter()
        op_meter.op_meter_leave(key)
        gap = 2 * key + (calls[key] >= EARLY_CALLS)
        calls[key] += 1
        turns: Counter[str] = Counter()
        for name in draw.choice(passes):
            OPS[name](X)
            expected[name, gap, min(turns[name], MAX_ORDINALS)] += 1
            turns[name] += 1
    assert rows(op_meter) == expected
    assert op_meter.op_meter_lost() == 0


def test_more_than_are_kept(op_meter: Any) -> None:
    """They are booked as the first of their name, or counted as lost."""
    keys, turns = MAX_CELLS // MAX_ORDINALS + 8, MAX_ORDINALS + 1
    for _ in range(2):
        for key in range(1, keys + 1):
            op_meter.op_meter_enter()
            op_meter.op_meter_leave(key)
            for _ in range(turns):
                torch.sin(X)
    booked = rows(op_meter)
    assert len(booked) == MAX_CELLS
    lost = op_meter.op_meter_lost()
    assert 0 < lost == 2 * keys * turns - booked.total()
    last = max(gap for _, gap, _ in booked)
    kept = max(ordinal for _, gap, ordinal in booked if gap == last)
    assert booked["aten::sin", last, 0] == 2 * (turns - kept)


def test_after_clearing(op_meter: Any) -> None:
    """What this thread and others remember of the cells before is of no use, nor of harm."""
    for ops in ([torch.sin, torch.cos, torch.sin], [torch.cos, torch.cos]):
        op_meter.op_meter_clear()
        op_meter.op_meter_enter()
        op_meter.op_meter_leave(1)
        for op in ops:
            op(X)
    assert rows(op_meter) == {("aten::cos", 2, 0): 1, ("aten::cos", 2, 1): 1}
