"""Ops on the lines of others, whose number is known."""

import pytest

from instrumented_backend.observe.ops.beside import beside
from instrumented_backend.observe.ops.called import Number
from instrumented_backend.observe.ops.estimate import Sampled
from instrumented_backend.observe.ops.lines import UNKNOWN, Line
from instrumented_backend.observe.ops.spread import SPREAD

HERE, THERE = Line("a.py", 1, "f"), Line("a.py", 2, "f")
Windows = dict[tuple[str, Line], tuple[float, float]]


def found(windows: Windows, **known: float) -> dict[str, Number]:
    """``windows``: by name and line, how many they have, and the standard error of that.

    Those that are known have been brought to their number, and their error with them.
    """
    by_line: dict[tuple[str, Line], Sampled] = {}
    by_name: dict[str, Sampled] = {}
    have: dict[str, float] = {}
    for (name, line), (ops, error) in windows.items():
        all_ops = sum(n for (of_name, _), (n, _) in windows.items() if of_name == name)
        times = known.get(name, all_ops) / all_ops
        by_line[name, line] = Sampled(ops=ops * times, ops_variance=(error * times) ** 2)
        by_name.setdefault(name, Sampled()).add_share(by_line[name, line], 1.0)
        if name in known:
            have[name] = all_ops
    return beside(by_name, by_line, have)


def test_as_many_times_more_as_of_the_known_one() -> None:
    windows = {("sum", HERE): (1_000, 250.0), ("select", HERE): (3_000, 700.0)}
    number = found(windows, sum=1_200)["select"]
    assert number.ops == pytest.approx(3_600)
    # One may be of another branch of the line: what windows have is as likely as before.
    assert 700 < number.error < 800


def test_several_that_agree_tell_more() -> None:
    windows = {(name, HERE): (1_000, 250.0) for name in ("sum", "mul", "div", "select")}
    one = found(windows, sum=1_200)["select"]
    three = found(windows, sum=1_200, mul=1_200, div=1_200)["select"]
    assert one.ops == three.ops == pytest.approx(1_200)
    assert three.error < one.error


def test_those_that_disagree_are_of_several_branches() -> None:
    windows = {(name, HERE): (1_000, 400.0) for name in ("sum", "mul", "select")}
    number = found(windows, sum=1_300, mul=900)["select"]
    assert number.ops == pytest.approx(1_100)
    assert number.error * SPREAD > 400  # it may be of either


@pytest.mark.parametrize(
    "windows",
    [
        {("sum", THERE): (1_000, 250.0), ("select", HERE): (1_000, 250.0)},
        {("sum", UNKNOWN): (1_000, 250.0), ("select", UNKNOWN): (1_000, 250.0)},
        # The one whose number is known is on two lines, and more often on one of them.
        {
            ("sum", HERE): (800, 200.0),
            ("sum", THERE): (200, 50.0),
            ("select", HERE): (1_000, 250.0),
        },
        # Or the other is.
        {
            ("sum", HERE): (1_000, 250.0),
            ("select", HERE): (800, 200.0),
            ("select", THERE): (200, 50.0),
        },
    ],
    ids=["elsewhere", "nobody knows where", "on two lines", "partly elsewhere"],
)
def test_what_no_line_tells(windows: Windows) -> None:
    assert not found(windows, sum=2_000)


def test_what_windows_know_well_themselves() -> None:
    windows = {("sum", HERE): (1_000, 250.0), ("select", HERE): (1_000, 1.0)}
    assert not found(windows, sum=1_200)


def test_windows_that_are_surer_than_they_should_be() -> None:
    """They have the line's other ops wrong by more than they say, and these with them."""
    windows = {(name, HERE): (130, 40.0) for name in ("sum", "mul", "select")}
    one = found(windows, sum=500)["select"]
    two = found(windows, sum=500, mul=500)["select"]
    assert one.ops == two.ops == pytest.approx(500)
    assert one.error * SPREAD > 500 - 130 > two.error * SPREAD > 200


def test_what_is_less_certain_than_what_it_is_beside() -> None:
    """It is seldom on its line: how often is by chance, however often the line was run."""
    windows = {("sum", HERE): (1_000, 100.0), ("select", HERE): (10, 5.0)}
    assert not found(windows, sum=900)
