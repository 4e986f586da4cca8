"""What windows have cost, and when that is enough."""

import pytest

from instrumented_backend.observe.native.structs import Work
from instrumented_backend.observe.ops.work import is_enough, looks_s

AFFORDABLE_S = 0.02


def work(marks: int, novel: int, first: int, spent_s: float) -> Work:
    return Work(marks=marks, novel=novel, first=first, op_ns=round(1e9 * spent_s))


@pytest.mark.parametrize(
    ("marks", "novel", "spent_s", "enough"),
    [
        (1000, 9, 0.03, False),  # it has just opened, and all is known from before
        (1011, 9, 0.03, False),
        (1012, 9, 0.03, True),  # a loop of what was known
        (1029, 1010, 0.03, False),  # something new came in it, for ten marks
        (1030, 1010, 0.03, True),
        (1030, 1010, 0.01, False),  # and it may cost more
        (1029, 1029, 0.05, True),  # a loop that is always new
    ],
)
def test_a_window_is_open_until_the_loop_has_come_round(
    marks: int, novel: int, spent_s: float, enough: bool
) -> None:
    assert is_enough(work(marks, novel, 1000, spent_s), AFFORDABLE_S, 0.04) is enough


def test_after_too_much_was_spent_a_compilations_own_share_counts() -> None:
    assert not is_enough(work(1005, 1005, 1000, 0.101), AFFORDABLE_S, most_s=0.102)
    assert is_enough(work(1005, 1005, 1000, 0.103), AFFORDABLE_S, most_s=0.102)


def test_looks_are_a_share_of_the_run() -> None:
    assert looks_s(0.0) == (0.005, 0.02)
    assert looks_s(10.0) == pytest.approx((0.04, 0.03))
    assert looks_s(3600.0) == pytest.approx((0.05, 3.62))
