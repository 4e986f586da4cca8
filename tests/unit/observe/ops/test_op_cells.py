"""How the op meter's native part tells ops apart: by name, mark, turn in the gap and windows."""

import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from metering import CERTAIN, FIRST_GAP, RANDOM, call, on_thread, seen, whole_after

from instrumented_backend.observe.native import structs

MAX_CELLS, MAX_ORDINALS = 65536, 512
MAX_TURNS = MAX_CELLS // 4 * 3
X = torch.ones(2)
OPS = {"aten::sin": torch.sin, "aten::cos": torch.cos, "aten::tanh": torch.tanh}


def rows(op_meter: Any) -> Counter[tuple[str, int, int]]:
    """By name, the region before, and turn. Gaps that are under way end."""
    op_meter.op_meter_settle(0)
    marks = (structs.MarkRow * op_meter.op_meter_marks(None, 0))()
    op_meter.op_meter_marks(marks, len(marks))
    array = (structs.CellRow * op_meter.op_meter_cells(None, 0))()
    assert op_meter.op_meter_cells(array, len(array)) == len(array)
    assert all(row.ns >= 0 for row in array)
    assert len({(row.kind, row.part, row.slot) for row in array}) == len(array)
    counts: Counter[tuple[str, int, int]] = Counter()
    for row in array:
        counts[row.name.decode(), marks[row.mark].graph, row.ordinal] += row.count
    return counts


def sample(op_meter: Any, line: Callable[[bytes], int], each: bool) -> Any:
    sampler = structs.Sampler(line)
    op_meter.op_meter_sample(sampler, each)
    return sampler  # to be held


def test_passes_that_repeat_and_passes_that_differ(op_meter: Any) -> None:
    """A loop's next op is mostly the one that came next last time, and here often another."""
    draw = random.Random(0)
    passes = [draw.choices(list(OPS), k=length) for length in (1, 4, 9, 9, 250)]
    expected: Counter[tuple[str, int, int]] = Counter()
    op_meter.op_meter_open(False)
    for _ in range(200):
        key = draw.choice((3, 4))
        call(op_meter, key)
        turns: Counter[str] = Counter()
        for name in draw.choice(passes):
            OPS[name](X)
            expected[name, key, turns[name]] += 1
            turns[name] += 1
    assert rows(op_meter) == expected
    assert seen(op_meter).lost == 0


def test_many_turns_are_one_from_some_number_on(op_meter: Any) -> None:
    op_meter.op_meter_open(False)
    call(op_meter, 1)
    for _ in range(MAX_ORDINALS + 100):
        torch.sin(X)
    booked = rows(op_meter)
    assert booked.pop(("aten::sin", 1, MAX_ORDINALS)) == 100
    assert set(booked.values()) == {1} and len(booked) == MAX_ORDINALS


def test_more_than_are_kept(op_meter: Any) -> None:
    """A name's later turns are booked as its first; names for which there is no place are lost."""
    op_meter.op_meter_open(False)
    keys, turns = MAX_TURNS // MAX_ORDINALS + 8, MAX_ORDINALS + 1
    for key in range(1, keys + 1):
        call(op_meter, key)
        for _ in range(turns):
            torch.sin(X)
    booked = rows(op_meter)
    assert booked.total() == keys * turns and seen(op_meter).lost == 0
    assert booked["aten::sin", keys, 0] == turns
    left = MAX_CELLS - len(booked)
    for key in range(keys + 1, keys + left + 11):
        call(op_meter, key)
        torch.sin(X)
    assert len(rows(op_meter)) == MAX_CELLS
    assert seen(op_meter).lost == 10


def test_after_clearing(op_meter: Any) -> None:
    """What this thread and others remember of the cells before is of no use, nor of harm."""
    op_meter.op_meter_open(False)
    for ops in ([torch.sin, torch.cos, torch.sin], [torch.cos, torch.cos]):
        op_meter.op_meter_clear()
        call(op_meter, 1)
        for op in ops:
            op(X)
    assert rows(op_meter) == {("aten::cos", 1, 0): 1, ("aten::cos", 1, 1): 1}


def test_ops_are_booked_by_windows(op_meter: Any) -> None:
    op_meter.op_meter_open(False)
    call(op_meter, 1)
    torch.sin(X)
    call(op_meter, 2)
    op_meter.op_meter_close()
    found = seen(op_meter)
    assert whole_after(found, 1, CERTAIN) == (1, 1) and whole_after(found, 1, RANDOM) == (0, 0)
    array = (structs.CellRow * 9)()
    assert op_meter.op_meter_cells(array, len(array)) == 1
    assert array[0].part == FIRST_GAP


def test_what_is_inside_an_op_or_a_region_is_none(op_meter: Any) -> None:
    op_meter.op_meter_open(False)
    call(op_meter, 1, lambda: [torch.sin(X) for _ in range(5)])
    torch.nn.functional.linear(X, torch.ones(2, 2))
    names = Counter(name for name, _, _ in rows(op_meter))
    assert names["aten::linear"] == 1 and "aten::sin" not in names
    assert not {"aten::mm", "aten::addmm", "aten::matmul"} & set(names)


# --- Samples of lines ---------------------------------------------------------------------------


def test_a_sampler_that_is_asked_for_each_op(op_meter: Any) -> None:
    asked: list[bytes] = []

    def line(name: bytes) -> int:
        asked.append(name)
        return 7 if name == b"aten::sin" else 8

    held = sample(op_meter, line, True)
    op_meter.op_meter_open(False)
    for _ in range(3):
        call(op_meter, 1)
        torch.sin(X)
        torch.cos(X)
    found = seen(op_meter)
    assert held and asked == 3 * [b"aten::sin", b"aten::cos"]
    lines: Counter[tuple[str, int]] = Counter()
    for kind in found.kinds:
        for cell in [*kind.first.cells, *kind.whole[CERTAIN].cells]:
            ((number, sums),) = cell.lines.items()
            lines[cell.name, number] += round(sums.ops)
            assert sums == (cell.count, cell.time_ns, 0.0)
    assert lines == {("aten::sin", 7): 3, ("aten::cos", 8): 3}


def test_each_position_in_a_loop_has_its_own_lines(op_meter: Any) -> None:
    """A step of two optimizers: the same op after the same mark, on two lines in turn."""
    now = 0
    held = sample(op_meter, lambda _: now, False)
    op_meter.op_meter_open(False)
    for _ in range(200):
        for before, here in ((2, 7), (3, 8)):
            now = here
            call(op_meter, before)
            call(op_meter, 1)
            torch.sin(X)
    call(op_meter, 2)
    # Only the very first gap of a position, which is not sampled, is taken for one of either.
    lines = {line: pytest.approx(200, abs=2) for line in (7, 8)}
    assert held and ops_by_line(op_meter) == lines


def ops_by_line(op_meter: Any) -> Counter[int]:
    lines: Counter[int] = Counter()
    for kind in seen(op_meter).kinds:
        for part in kind.wholes:
            for cell in part.cells:
                for line, sums in cell.lines.items():
                    lines[line] += round(sums.ops)
    return lines


def test_what_comes_before_an_op_tells_its_line(op_meter: Any) -> None:
    """One graph called twice a step, and the same op on another line after either call."""
    line = 0
    held = sample(op_meter, lambda _: line, False)
    op_meter.op_meter_open(False)
    for _ in range(300):
        call(op_meter, 1)
        line = 7
        torch.sin(X)
        call(op_meter, 1)
        line = 9
        torch.cos(X)
        line = 8
        torch.sin(X)
    call(op_meter, 1)
    assert held and ops_by_line(op_meter) == {7: 300, 8: 300, 9: 300}
    assert rows(op_meter) == {("aten::sin", 1, 0): 600, ("aten::cos", 1, 0): 300}


def test_an_op_on_several_lines_is_sampled_more_often(op_meter: Any) -> None:
    """Nothing tells these apart: some of both are asked, however many there were before."""
    asked = 0
    now = 7

    def line(_: bytes) -> int:
        nonlocal asked
        asked += 1
        return now

    held = sample(op_meter, line, False)
    op_meter.op_meter_open(False)
    turns, often = 4000, 16
    for here in (7, 8) * turns:
        now = here
        call(op_meter, 1)
        torch.sin(X)
    call(op_meter, 1)
    assert held and asked == pytest.approx(2 * turns / often, rel=0.25)
    found = ops_by_line(op_meter)
    assert found.total() == pytest.approx(2 * turns, abs=9)
    assert found[7] == pytest.approx(turns, rel=0.2)


def test_ops_that_tell_nothing_take_no_line_with_them(op_meter: Any) -> None:
    """Those of a gap that is not seen to its end, and slices of a short one; others are sampled."""
    held = sample(op_meter, lambda _: 5, False)

    def ops() -> None:
        for op in OPS.values():
            op(X)

    call(op_meter, 1)
    op_meter.op_meter_open(False)
    ops()  # a slice
    call(op_meter, 1)
    op_meter.op_meter_end()
    ops()  # after the window's end
    op_meter.op_meter_close()
    call(op_meter, 1)
    op_meter.op_meter_open(False)
    call(op_meter, 1)
    ops()
    call(op_meter, 1)
    kinds = seen(op_meter).kinds
    cells = [cell for kind in kinds for part in (kind.first, *kind.whole) for cell in part.cells]
    assert {cell.name: cell.lines.keys() for cell in cells} == {name: {5} for name in OPS}
    del held


def test_lines_of_the_same_op_in_gaps_of_another_length_are_of_use(op_meter: Any) -> None:
    held = sample(op_meter, lambda _: 5, False)
    op_meter.op_meter_open(False)
    for wait in (False, True):
        call(op_meter, 1)
        torch.sin(X)
        if wait:
            op_meter.op_meter_sample(structs.Sampler(), False)
            time.sleep(0.01)
    call(op_meter, 1)
    cells = [cell for kind in seen(op_meter).kinds for part in kind.wholes for cell in part.cells]
    assert held and len(cells) == 2
    assert all(cell.lines == {5: (1, cell.time_ns, 0.0)} for cell in cells)


def test_samples_become_fewer(op_meter: Any) -> None:
    asked: list[bytes] = []

    def line(name: bytes) -> int:
        asked.append(name)
        return 1

    held = sample(op_meter, line, False)
    op_meter.op_meter_open(False)
    for _ in range(500):
        call(op_meter, 1)
        torch.sin(X)
    assert held and 1 <= len(asked) < 250
    work = structs.Work()
    op_meter.op_meter_work(work)
    assert work.samples >= len(asked)


def test_ops_of_a_sampler_are_none(op_meter: Any) -> None:
    def line(_: bytes) -> int:
        torch.cos(X)
        return 1

    held = sample(op_meter, line, True)
    op_meter.op_meter_open(False)
    call(op_meter, 1)
    torch.sin(X)
    assert held and set(rows(op_meter)) == {("aten::sin", 1, 0)}


@pytest.mark.parametrize("change", ["clear", "settle", "call"])
def test_the_gap_ends_while_a_line_is_sampled(op_meter: Any, change: str) -> None:
    """The sample is of what was: it is not kept with what is there instead."""

    def line(name: bytes) -> int:
        if name == b"aten::cos":
            if change == "call":
                on_thread(lambda: call(op_meter, 2), b"pt_autograd_0")
            else:
                arguments = (0,) if change == "settle" else ()
                getattr(op_meter, f"op_meter_{change}")(*arguments)
        return 3

    held = sample(op_meter, line, True)
    op_meter.op_meter_open(False)
    call(op_meter, 1)
    for _ in range(300):
        torch.sin(X)
    torch.cos(X)
    torch.tanh(X)
    op_meter.op_meter_sample(structs.Sampler(), False)
    found = seen(op_meter)
    cells = [cell for kind in found.kinds for part in kind.wholes for cell in part.cells]
    assert held and {cell.name: cell.lines.keys() for cell in cells}["aten::tanh"] == {3}
    assert all(not cell.lines for cell in cells if cell.name == "aten::cos")


def test_ctrl_c_while_a_line_is_sampled(op_meter: Any) -> None:
    """Python would lose it; the native part passes it on to the program."""
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        held = sample(op_meter, lambda _: -1, True)
        op_meter.op_meter_open(False)
        call(op_meter, 1)
        torch.sin(X)
        while not came:
            pass
    finally:
        signal.signal(signal.SIGINT, before)
    assert held and came == [signal.SIGINT]
    (cell,) = [cell for kind in seen(op_meter).kinds for part in kind.wholes for cell in part.cells]
    assert (cell.name, cell.count, cell.lines) == ("aten::sin", 1, {})


def test_a_sampler_that_has_gone(op_meter: Any) -> None:
    """Another thread may take it away between the op and its sample."""
    held = sample(op_meter, lambda _: op_meter.op_meter_sample(structs.Sampler(), False) or 4, True)
    op_meter.op_meter_open(False)
    call(op_meter, 1)
    torch.sin(X)
    torch.cos(X)
    found = seen(op_meter)
    cells = [cell for kind in found.kinds for part in kind.wholes for cell in part.cells]
    assert held and {cell.name: set(cell.lines) for cell in cells} == {
        "aten::sin": {4},
        "aten::cos": set(),
    }
