"""The figures of a trial, against values worked out by hand."""

import math

import pytest

from instrumented_backend.records.trials import Agreement, SpeedUp
from instrumented_backend.trials import compare


def test_an_interval_by_hand() -> None:
    """Logarithms 0.1, 0.2, 0.3: their mean is 0.2, their standard deviation 0.1. With two degrees
    of freedom t is 9.925: half of the interval is 9.925 · 0.1 / √3 = 0.57302."""
    pairs = [(math.exp(log), 1.0) for log in (0.1, 0.2, 0.3)]
    found = compare.speed_up(pairs)
    assert found is not None and found.low is not None and found.high is not None
    assert found.pairs == 3
    assert found.ratio == pytest.approx(1.221403, abs=1e-6)  # e^0.2
    assert found.low == pytest.approx(0.68864, abs=1e-4)  # e^-0.37302
    assert found.high == pytest.approx(2.16632, abs=1e-4)  # e^0.77302


def test_runs_that_are_alike() -> None:
    assert compare.speed_up([(3.0, 2.0)] * 4) == SpeedUp(
        *(pytest.approx(1.5), pytest.approx(1.5), pytest.approx(1.5), 4)
    )


def test_fewer_than_three_pairs_have_no_interval() -> None:
    assert compare.speed_up([]) is None
    assert compare.speed_up([(3.0, 2.0)]) == SpeedUp(pytest.approx(1.5), None, None, 1)
    assert compare.speed_up([(3.0, 2.0)] * 2) == SpeedUp(pytest.approx(1.5), None, None, 2)


def test_a_faster_machine_in_one_pair_is_no_gain() -> None:
    """Both sides of a pair drift together: the ratios are the same."""
    found = compare.speed_up([(2.0, 1.0), (4.0, 2.0), (8.0, 4.0)])
    assert found is not None
    assert found.ratio == found.low == found.high == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("low", "high", "pairs", "verdict"),
    [
        (1.02, 1.3, 3, compare.HELPS),
        (1.005, 1.3, 9, compare.UNCLEAR),  # less than a hundredth is no gain
        (0.5, 0.98, 3, compare.HURTS),
        (0.985, 1.015, 5, compare.SAME),
        (0.97, 1.015, 5, compare.UNCLEAR),
    ],
)
def test_what_an_interval_settles(low: float, high: float, pairs: int, verdict: str) -> None:
    assert compare.verdict(SpeedUp(1.0, low, high, pairs)) == verdict


def test_without_an_interval_nothing_is_settled() -> None:
    assert compare.verdict(None) == compare.UNCLEAR
    assert compare.verdict(SpeedUp(9.0, None, None, 1)) == compare.UNCLEAR


# --- What a program prints -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        (["loss 0.5\n"], "loss 0.5\n", Agreement("same")),
        (["loss 0.5\n"], "loss 0.4\n", Agreement("numbers differ", pytest.approx(0.2))),
        (["step 1 loss 2e-3"], "step 1 loss 2e-3 ", Agreement("same")),
        (["loss 0.5\n"], "loss 0.5\nloss 0.4\n", Agreement("differs")),
        (["loss 0.5\n"], "Loss 0.5\n", Agreement("differs")),
        (["loss 0.5\n"], "loss nan\n", Agreement("differs")),
        (["loss nan\n"], "loss nan\n", Agreement("same")),
        ([""], "", Agreement("nothing printed")),
        ([" \n"], "loss 0.5", Agreement("differs")),
        (["loss 0.50"], "loss 0.5", Agreement("same")),
        (["loss -1"], "loss 1", Agreement("numbers differ", 2.0)),
        (["loss 0"], "loss inf", Agreement("differs")),
    ],
)
def test_what_is_printed(before: list[str], after: str, found: Agreement) -> None:
    assert compare.agreement(before, after) == found


def test_times_that_are_printed_are_left_out() -> None:
    """Between two runs of the program as it is they differ, too; the loss does not."""
    before = ["loss 0.5 in 12.1 ms", "loss 0.5 in 13.4 ms"]
    assert compare.agreement(before, "loss 0.5 in 7.7 ms") == Agreement("same")
    assert compare.agreement(before, "loss 0.25 in 7.7 ms") == Agreement("numbers differ", 0.5)
    # One run alone cannot tell.
    assert compare.agreement(before[:1], "loss 0.5 in 12 ms").kind == "numbers differ"


def test_lines_of_ranks_mix_as_it_happens() -> None:
    before = [
        "rank 0 begins\nrank 1 is here\nloss 0.5\n",
        "rank 1 is here\nrank 0 begins\nloss 0.5\n",
    ]
    mixed = "loss {}\nrank 0 begins\nrank 1 is here\n"
    assert compare.agreement(before, mixed.format(0.5)) == Agreement("same")
    assert compare.agreement(before, mixed.format(0.25)) == Agreement("numbers differ", 0.5)
    assert compare.agreement(before, "loss 0.5\nrank 0 begins\n") == Agreement("differs")


def test_what_varies_anyway_is_no_matter_of_the_change() -> None:
    assert compare.agreement(["seed a\n", "seed b\n"], "seed c\n") == Agreement("varies")
    assert compare.agreement(["seed a\n", "seed b\n"], "seed b\n") == Agreement("same")


# --- Compiling -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("compile_s", "base_s", "gain_s", "steps"),
    [
        (30.0, 10.0, 0.5, 40),
        (30.0, 10.0, 0.3, 67),  # 66.7
        (10.0, 30.0, 0.5, 0),
        (30.0, 10.0, 0.0, None),
        (30.0, 10.0, -1.0, None),
        (None, 10.0, 0.5, None),
        (30.0, None, 0.5, None),
    ],
)
def test_paid_back(
    compile_s: float | None, base_s: float | None, gain_s: float, steps: int | None
) -> None:
    assert compare.paid_back_after(compile_s, base_s, gain_s) == steps
