"""Tables of two ways, by their sums."""

import pytest

from instrumented_backend.observe.ops.raking import raked


def test_gaps_that_move_to_another_kind_as_they_are_sampled() -> None:
    """100 ops on either line; those of `a` are in kind 14, but a quarter, which samples lengthen.

    All samples of `a` are then in kind 15, beside those of `b`: by its own, half of it is `a`'s.
    """
    table = {14: {"a": 75.0}, 15: {"a": 62.5, "b": 62.5}}
    found = raked(table, {"a": 10.0, "b": 10.0})
    assert found[14] == {"a": 75}
    assert found[15] == {"a": pytest.approx(25, rel=1e-3), "b": pytest.approx(100, rel=1e-3)}


def test_rows_of_one_column_are_as_they_are() -> None:
    """What lengths tell apart is exact, whatever few samples say."""
    table = {14: {"a": 70.0}, 15: {"b": 10.0}}
    assert raked(table, {"a": 1.0, "b": 1.0}) == table


def test_columns_of_which_nothing_is_known_are_as_they_are() -> None:
    table = {14: {"a": 30.0, "b": 10.0}}
    assert raked(table, {}) == table
    assert raked(table, {"a": 5.0})[14] == {"a": pytest.approx(30), "b": pytest.approx(10)}


def test_sums_of_rows_hold() -> None:
    table = {1: {"a": 5.0, "b": 5.0}, 2: {"a": 1.0, "c": 9.0}, 3: {"b": 2.0, "c": 0.0}}
    found = raked(table, {"a": 3.0, "b": 1.0, "c": 7.0})
    assert {row: sum(cells.values()) for row, cells in found.items()} == pytest.approx(
        {row: sum(cells.values()) for row, cells in table.items()}
    )
