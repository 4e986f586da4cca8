"""Lines that the native part has been told, and asks for no more."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from metering import call, seen

from instrumented_backend.observe.failures import Failures
from instrumented_backend.observe.native import structs
from instrumented_backend.observe.ops.lines import Line, Lines

X = torch.ones(2)
ASKED = 99  # what another sampler answers


@pytest.fixture
def lines(op_meter: Any) -> Iterator[Lines]:
    lines = Lines(Failures(), False)
    lines.tell(op_meter)
    held = structs.Sampler(lines.sample)
    op_meter.op_meter_sample(held, False)
    op_meter.op_meter_open(False)
    call(op_meter, 1)
    yield lines
    op_meter.op_meter_sample(structs.Sampler(), False)


def who_asks_now(op_meter: Any) -> object:
    """From here on, a line that has to be asked for is `ASKED`. To be held."""
    held = structs.Sampler(lambda _: ASKED)
    op_meter.op_meter_sample(held, False)
    return held


def lines_of(op_meter: Any, *names: str) -> list[int]:
    """Of the ops of each name by their turn in the gap, each of which has been sampled."""
    found = seen(op_meter)
    parts = [part for kind in found.kinds for part in (kind.first, *kind.whole)]
    cells = [cell for part in (*parts, *found.loose) for cell in part.cells]
    return [line for name in names for cell in cells if cell.name == name for line in cell.lines]


def test_a_line_is_asked_for_once(op_meter: Any, lines: Lines) -> None:
    def op() -> None:
        torch.sin(X)

    op()
    held = who_asks_now(op_meter)
    op()
    torch.cos(X)  # a line of its own
    assert held and set(lines_of(op_meter, "aten::sin")) == {1}
    assert lines_of(op_meter, "aten::cos") == [ASKED]
    first = op.__code__.co_firstlineno
    assert lines.read()[1] == Line(__file__, first + 1, op.__qualname__, first)


def test_two_places_of_one_line_are_two(op_meter: Any, lines: Lines) -> None:
    def op(twice: bool) -> None:
        torch.sin(X) if twice else torch.cos(X)

    op(True)
    held = who_asks_now(op_meter)
    op(False)
    assert held and lines_of(op_meter, "aten::cos") == [ASKED]


def test_through_frames_of_torch(op_meter: Any, lines: Lines) -> None:
    """Theirs is the line that called them, whichever of them is on the way."""
    layer = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Hardswish())

    def op() -> None:
        layer(X)

    op()
    held = who_asks_now(op_meter)
    op()
    layer(X)
    found = lines_of(op_meter, "aten::relu", "aten::hardswish")
    assert held and found == [1, 1, ASKED] * 2


def test_code_without_text_is_asked_for_each_time(op_meter: Any, lines: Lines) -> None:
    """It stands for its caller, and may be called from elsewhere."""
    made: dict[str, Any] = {"sin": torch.sin, "X": X}
    exec("def f():\n    sin(X)\n", made)

    def caller() -> None:
        made["f"]()

    caller()
    held = who_asks_now(op_meter)
    caller()
    assert held and lines_of(op_meter, "aten::sin") == [1, ASKED]
    assert lines.read()[1].line == caller.__code__.co_firstlineno + 1


def test_none_is_known_once_all_is_forgotten(op_meter: Any, lines: Lines) -> None:
    """Their numbers are others' then."""

    def op() -> None:
        torch.sin(X)

    op()
    lines.clear()
    op_meter.op_meter_clear()
    held = who_asks_now(op_meter)
    call(op_meter, 1)
    op()
    assert held and lines_of(op_meter, "aten::sin") == [ASKED]


def test_all_are_asked_for_where_each_op_is_printed(op_meter: Any, lines: Lines) -> None:
    def op() -> None:
        torch.sin(X)

    op()
    held = structs.Sampler(lambda _: ASKED)
    op_meter.op_meter_sample(held, True)
    op()
    assert held and lines_of(op_meter, "aten::sin") == [1, ASKED]


@torch.jit.script
def ops_of_a_script(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


@torch.jit.script
def on_a_thread_of_c(x: torch.Tensor) -> torch.Tensor:
    return torch.jit.wait(torch.jit.fork(ops_of_a_script, x))


def test_a_thread_of_the_engine_has_the_line_of_its_backward(op_meter: Any, lines: Lines) -> None:
    number = 7
    op_meter.op_meter_current_backward(lambda: number)
    op_meter.op_meter_backward_line(7, 3)
    held = who_asks_now(op_meter)
    on_a_thread_of_c(X)
    number = 8
    on_a_thread_of_c(X)
    number = -1
    on_a_thread_of_c(X)
    assert held and lines_of(op_meter, "aten::sin") == [3, ASKED, ASKED]
