"""Steps that something held up, of which looks found slices."""

from typing import Any

import pytest
from seen_gaps import kind, observed, part

from instrumented_backend.observe.ops.cells import Cell
from instrumented_backend.observe.ops.estimate import estimate
from instrumented_backend.observe.ops.observed import Kind

MS, S = 10**6, 10**9
USUAL, LONG_STEP = 19, 24  # octaves


def cells(adds: float, muls: float = 0, name: str = "aten::mul") -> list[Cell]:
    made = [Cell("aten::add", 0, 0, adds, 1000 * adds, {})]
    return [*made, Cell(name, 0, 1, muls, 1000 * muls, {})] if muls else made


def steps(adds: int = 30) -> Kind:
    """600 of a millisecond, with 20 ``aten::mul`` each; ten windows saw ten each."""
    each = (10, 10 * MS, 10 * (adds + 20), 10_000 * (adds + 20))
    seen = part(*[each] * 10, cells=cells(100 * adds, 2000))
    return kind(600, 600 * MS, None, seen, octave=USUAL)


def held_up(seen: list[Cell], n: int = 1, octave: int = LONG_STEP, **more: Any) -> Kind:
    """Of 20 ms each; a window saw the last 2 ms of one: as much in all of it is ten times that."""
    ops = sum(cell.count for cell in seen)
    slices = part((0.002, 2 * MS, ops, 1000 * ops), cells=seen)
    looked = part((1, 20 * MS, 10 * ops, 10_000 * ops))
    return kind(n, n * 20 * MS, octave=octave, certain_slices=slices, looked=looked, **more)


def counts(*kinds: Kind) -> dict[str, float]:
    found = estimate(observed(*kinds)).by_name
    return {name: ops.ops for name, ops in found.items()}


def test_a_step_that_waits_has_a_steps_ops() -> None:
    assert counts(steps(), held_up(cells(30, 20))) == pytest.approx(
        {"aten::add": 601 * 30, "aten::mul": 601 * 20}
    )


def test_others_of_which_nothing_was_seen_are_as_likely_such_steps() -> None:
    unseen = kind(1, 10 * MS, octave=LONG_STEP - 1)
    assert counts(steps(), held_up(cells(12, 8)), unseen)["aten::add"] == pytest.approx(602 * 30)


def test_the_spread_has_as_many_as_in_all_of_its_time() -> None:
    found = estimate(observed(steps(), held_up(cells(30, 20)))).eager
    assert found.ops + 2 * found.ops_error >= 600 * 50 + 10 * 50


@pytest.mark.parametrize(
    "unlike",
    [
        held_up(cells(31, 20)),  # more of one op
        held_up(cells(10, 5, name="aten::relu")),  # which no step has
        held_up(cells(30, 20), n=20),  # too many
        held_up(cells(30, 20), by_chance=part((1, 20 * MS, 500, 500_000), cells=cells(500))),
    ],
)
def test_what_may_be_something_else(unlike: Kind) -> None:
    assert counts(steps(), unlike)["aten::add"] > (600 + 1.5 * sum(unlike.n)) * 30


def test_steps_that_differ_tell_nothing() -> None:
    windows = [(10, 10 * MS, ops, 1000 * ops) for ops in (400, 600) * 5]
    uneven = kind(600, 600 * MS, None, part(*windows, cells=cells(3000, 2000)), octave=USUAL)
    assert counts(uneven, held_up(cells(30, 20)))["aten::add"] > 602 * 30
