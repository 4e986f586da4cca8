"""What `benchmarks/next_steps.py` makes of runs: bounds and gains, and when it fails."""

from dataclasses import replace
from typing import Any

import pytest
from next_programs.catalogue import Known
from next_steps import Row, exit_code, row_of

BREAK, NOTHING = (Known(lambda compile, changed, device: 0.0, code) for code in ("break", None))


def ran(wall: float, cpu: float = 1.0, result: float = 7.0) -> dict[str, Any]:
    return {"wall": wall, "cpu": cpu, "result": result}


def said(*steps: tuple[str, float, str]) -> dict[str, Any]:
    told = [{"code": code, "bound_s": bound, "known": known} for code, bound, known in steps]
    return {**ran(10.0, 5.0), "steps": told}


def test_a_row() -> None:
    # Gains of 3 and 5 s: 4, and two standard errors of 2 * 1.414 / 1.414.
    pairs = [[ran(10.0), ran(7.0)], [ran(12.0), ran(7.0)]]
    row = row_of("p", BREAK, "wall", said(("break", 6.0, "exact"), ("data", 1.0, "exact")), pairs)
    assert (row.first, row.bound_s, row.gain_s) == ("break", 6.0, 4.0)
    assert row.spread_s == pytest.approx(2.0)
    assert row.ok and row.is_first and row.is_tight
    # One run as it is differs by two standard deviations of 1.414: with the 2, by 3.46.
    assert row.run_spread_s == pytest.approx(2 * 2**0.5)
    assert replace(row, gain_s=9.4).ok and not replace(row, gain_s=9.5).ok
    # Two places with the same cause; what only a trial tells is not told first.
    told = said(("x", 9.0, "trial"), *[("break", 6.0, "exact")] * 2)
    row = row_of("p", BREAK, "wall", told, pairs)
    assert (row.first, row.bound_s, row.is_tight) == ("break", 12.0, True)  # at most 2 * (4 + 2)


def test_cpu_time_takes_the_bound_by_its_part() -> None:
    pairs = [[ran(1.0, 3.0), ran(1.0, 1.0)]] * 2
    row = row_of("p", BREAK, "cpu", said(("break", 6.0, "exact")), pairs)
    assert (row.bound_s, row.gain_s, row.spread_s) == (3.0, 2.0, 0.0)  # 6 s * 5 / 10
    # What had more of a CPU than the mean is not over the wall time that was told.
    assert replace(row, gain_s=5.0).ok and not replace(row, gain_s=6.1).ok


def test_another_result_is_no_gain() -> None:
    pairs = [[ran(3.0), ran(1.0, result=8.0)]] * 2
    assert not row_of("p", BREAK, "wall", said(("break", 6.0, "exact")), pairs).ok


def test_where_nothing_helps_nothing_is_told() -> None:
    assert row_of("p", NOTHING, "wall", said(("x", 9.0, "trial")), []).ok
    assert not row_of("p", NOTHING, "wall", said(("data", 9.0, "exact")), []).ok


def test_where_only_a_trial_tells_no_bound_is_too_wide() -> None:
    trial = replace(BREAK, code="tf32", is_trial=True)
    pairs = [[ran(10.0), ran(7.0)]] * 2
    row = row_of("p", trial, "wall", said(("tf32", 9.0, "trial")), pairs)
    assert row.is_first and row.ok and row.is_tight is None
    late = said(("data", 9.0, "exact"), ("tf32", 9.0, "trial"))
    assert not row_of("p", trial, "wall", late, pairs).is_first


GOOD = Row("p", "break", "break", 6.0, 4.0, 0.1, True)


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ([GOOD], 0),
        ([], 1),
        ([GOOD, replace(GOOD, gain_s=6.2)], 1),  # over its bound
        ([GOOD, replace(GOOD, bound_s=None)], 1),  # not told
        ([GOOD] * 11 + [replace(GOOD, first="data")] * 2, 0),  # 11 of 13 are first
        ([GOOD] * 9 + [replace(GOOD, first="data")] * 2, 1),
        ([GOOD] * 8 + [replace(GOOD, bound_s=9.0)] * 2, 0),  # 8 of 10 within twice the gain
        ([GOOD] * 7 + [replace(GOOD, bound_s=9.0)] * 3, 1),
        ([GOOD, replace(GOOD, gain_s=-0.1)], 0),  # no gain: nothing to be within twice of
        ([GOOD, replace(GOOD, gain_s=-0.2)], 1),  # a loss
    ],
)
def test_the_exit_code(rows: list[Row], code: int) -> None:
    assert exit_code(rows) == code
