"""Garbage collections: they are no time of a gap, nor are they taken off twice."""

import time
from typing import Any

import pytest
import torch
from metering import CERTAIN, LEAD_S, call, kinds_after, seen

X = torch.ones(2)
LONG_NS = 10**15  # whatever the machine is busy with, no test lasts for so long
LONG_AGO_NS = 1  # after the machine's start


def collect(op_meter: Any) -> None:
    op_meter.op_meter_collected(LONG_NS)


def test_a_collection_is_no_time_of_its_gap(op_meter: Any) -> None:
    op_meter.op_meter_clear()
    collect(op_meter)
    call(op_meter, 1)
    (before,) = kinds_after(seen(op_meter), 0, to=1)
    assert before.ns[0] == 0


def gap_after_a_compilation(op_meter: Any, rest_s: float) -> int:
    """How long it is, with a rest in it."""
    op_meter.op_meter_quiet(-1, True, 0)
    time.sleep(rest_s)
    call(op_meter, 1)
    (before,) = kinds_after(seen(op_meter), 0, to=1)
    return before.ns[0]


def test_a_collection_in_a_compilation(op_meter: Any) -> None:
    """Importing what compiles collects for long: the time of neither is the gap's."""
    op_meter.op_meter_clear()
    op_meter.op_meter_quiet(1, True, 0)
    collect(op_meter)
    assert gap_after_a_compilation(op_meter, rest_s=0.01) >= 0.01e9


def test_a_collection_in_a_compilation_that_the_native_part_came_during(op_meter: Any) -> None:
    """It counts collections before it is told of the compilation, which is all of the gap."""
    op_meter.op_meter_begin(LONG_AGO_NS, 0)
    collect(op_meter)
    op_meter.op_meter_quiet(1, True, LONG_AGO_NS)
    assert gap_after_a_compilation(op_meter, rest_s=0.01) >= 0.01e9


def test_what_a_window_sees_before_a_compilation_that_collects(op_meter: Any) -> None:
    """A slice of a long gap, whose window closes while it compiles: all of its time is in it."""
    op_meter.op_meter_clear()
    torch.sin(X)  # the gap has begun
    op_meter.op_meter_open(False)
    time.sleep(LEAD_S)
    torch.cos(X)
    time.sleep(0.05)
    op_meter.op_meter_quiet(1, True, 0)
    collect(op_meter)
    op_meter.op_meter_close()
    op_meter.op_meter_quiet(-1, True, 0)
    call(op_meter, 1)
    (kind,) = kinds_after(seen(op_meter), 0, to=1)
    slices = kind.slices[CERTAIN].seen
    assert slices.ops == 1 and slices.ns >= 0.05e9
    assert sum(stage.ns for stage in kind.stages.values()) == pytest.approx(slices.ns)
    assert kind.own_ns >= slices.ns
