"""What the native part sees of gaps that go on otherwise than they began, and of the last one."""

import time
from collections import Counter
from typing import Any

import pytest
import torch
from metering import CERTAIN, LEAD_S, call, gaps, names, place, seen

from instrumented_backend.observe.ops.observed import Kind

X = torch.ones(2)
LONG_S = 0.3


def test_what_runs_at_exit_is_a_gap_of_its_own(op_meter: Any) -> None:
    """Seen from its beginning; the one before it has its own ops, and ends nowhere."""
    call(op_meter, 1)
    op_meter.op_meter_open(True)
    torch.sin(X)
    op_meter.op_meter_exit()
    for _ in range(2):
        torch.cos(X)
    time.sleep(LONG_S)
    observed = seen(op_meter)
    assert gaps(observed)[(1,), 0] == gaps(observed)[(1, "exit"), 0] == 1
    found: dict[tuple[Any, ...], Counter[str]] = {}
    for kind in observed.kinds:
        parts = kind.first, *kind.whole, *kind.slices
        found.setdefault(place(observed.marks[kind.mark]), Counter()).update(names(*parts))
    assert found[1, "exit"] == {"aten::cos": 2}
    assert found[1,].keys() <= {"aten::sin"}  # in a slice, where the machine is busy
    (last,) = [kind for kind in observed.kinds if place(observed.marks[kind.mark]) == (1, "exit")]
    assert last.ns[0] >= LONG_S * 1e9


def test_exit_without_a_gap_under_way(op_meter: Any) -> None:
    op_meter.op_meter_enter(1)
    op_meter.op_meter_exit()
    op_meter.op_meter_leave(1)
    assert (1, "exit") not in [place(mark) for mark in seen(op_meter).marks]


def begun_with_ops(op_meter: Any, ops: int) -> Kind:
    """A gap with so many ops at its beginning, all seen, and then two slices with none."""
    call(op_meter, 1)
    torch.sin(X)  # it has begun
    op_meter.op_meter_open(False)
    time.sleep(LEAD_S)
    for _ in range(ops):
        torch.cos(X)
    op_meter.op_meter_close()
    for wait_s in (0, LONG_S, LONG_S):
        op_meter.op_meter_open(False)
        time.sleep(0.002)
        op_meter.op_meter_close()
        time.sleep(wait_s)
    call(op_meter, 2)
    (kind,) = [kind for kind in seen(op_meter).kinds if kind.to == 2 and kind.slices[CERTAIN].cells]
    op_meter.op_meter_clear()
    return kind


def test_a_gap_that_begins_with_ops_and_goes_on_without(op_meter: Any) -> None:
    """As an evaluation, and then a checkpoint: when it had them is known."""
    ops = 20_000
    kind = begun_with_ops(op_meter, ops)
    slices = kind.slices[CERTAIN].seen
    assert kind.looked.n == 1 and slices.ops == ops
    stages = sorted(kind.stages.items())
    assert sum(stage.ops for _, stage in stages) == ops
    assert sum(stage.op_ns for _, stage in stages) == pytest.approx(slices.op_ns)
    assert sum(stage.ns for _, stage in stages) == pytest.approx(slices.ns)
    for (from_ns, until_ns), stage in stages:
        assert 0 < stage.ns <= until_ns - from_ns and stage.windows == 1
        assert stage.n == pytest.approx(1e-9 * stage.ns)
    late = [stage.ops for (_, until_ns), stage in stages if until_ns > LONG_S * 1e9]
    assert late and not any(late)


def test_all_of_a_gap_that_is_seen_whole_is_in_its_stages(op_meter: Any) -> None:
    kinds: list[Kind] = []
    while not kinds:  # the first of a kind is apart
        call(op_meter, 1)
        op_meter.op_meter_open(True)
        torch.sin(X)
        time.sleep(0.02)
        torch.cos(X)
        call(op_meter, 2)
        op_meter.op_meter_close()
        kinds = [kind for kind in seen(op_meter).kinds if names(kind.whole[CERTAIN])["aten::cos"]]
    stages, whole = sorted(kinds[0].stages.items()), kinds[0].whole[CERTAIN].seen
    assert sum(stage.ns for _, stage in stages) == pytest.approx(whole.ns)
    assert sum(stage.ops for _, stage in stages) == whole.ops == 2 * whole.n
    edges = [edge for edge, _ in stages]
    assert [begin for begin, _ in edges] == [0.0, *(end for _, end in edges[:-1])]


def test_what_a_window_sees_of_a_gap_after_its_end_is_in_its_stages(op_meter: Any) -> None:
    """It waits for the gap's end, and not for ever."""
    op_meter.op_meter_open(False)
    call(op_meter, 1)
    torch.sin(X)
    op_meter.op_meter_end()
    torch.cos(X)
    time.sleep(LONG_S)
    op_meter.op_meter_close()
    torch.tanh(X)
    time.sleep(LONG_S)
    call(op_meter, 2)
    (kind,) = [kind for kind in seen(op_meter).kinds if kind.to == 2]
    assert names(kind.slices[CERTAIN]) == {"aten::sin": 1}
    stages = kind.stages.values()
    assert sum(stage.ops for stage in stages) == 2
    assert LONG_S * 1e9 <= sum(stage.ns for stage in stages) < kind.own_ns - LONG_S * 1e9
