"""What `benchmarks/same_trials.py` makes of two runs, and when it fails."""

import pytest
from same_trials import CHANGES, Row, SpeedUp, exit_code

from instrumented_backend.trials.changes import CHANGES as ALL


def test_two_figures_agree_where_their_intervals_overlap() -> None:
    one = SpeedUp(1.5, 1.4, 1.6, 8)
    assert Row("dynamic", one, SpeedUp(1.7, 1.6, 1.8, 8)).ok
    assert Row("dynamic", SpeedUp(1.3, 1.2, 1.4, 8), one).ok
    assert not Row("dynamic", one, SpeedUp(1.7, 1.61, 1.8, 8)).ok
    assert not Row("dynamic", SpeedUp(1.3, 1.2, 1.39, 8), one).ok


def test_what_has_no_interval_agrees_with_nothing() -> None:
    one = SpeedUp(1.5, 1.4, 1.6, 8)
    assert not Row("dynamic", one, None).ok
    assert not Row("dynamic", SpeedUp(1.5, None, None, 2), one).ok
    assert Row("dynamic", SpeedUp(1.5, None, None, 2), None).cells == [
        "dynamic",
        "1.500 (2 pairs)",
        "-",
        "OFF",
    ]


@pytest.mark.parametrize(("agree", "expected"), [(20, 0), (19, 0), (18, 1)])
def test_nineteen_of_twenty_agree(agree: int, expected: int) -> None:
    one = SpeedUp(1.5, 1.4, 1.6, 8)
    rows = [Row("dynamic", one, one)] * agree + [Row("dynamic", one, None)] * (20 - agree)
    assert exit_code(rows) == expected
    assert exit_code([]) == 1


def test_its_changes_are_of_those_that_are_tried() -> None:
    assert set(CHANGES) <= {change.name for change in ALL}
