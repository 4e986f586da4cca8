"""Times of functions whose times are known."""

import itertools
import time

from opbench.results import Timing
from opbench.timing import add_times_outside, time_all


def test_known_times() -> None:
    turns: list[str] = []

    def slow() -> None:
        turns.append("slow")
        time.sleep(0.004)

    def fast() -> None:
        turns.append("fast")
        time.sleep(0.001)

    found = time_all({"slow": slow, "fast": fast}, repeats=2, device="cpu")
    # A sleep is never shorter than asked for; on a busy machine it may be much longer.
    assert 4000 <= found["slow"].median_us < 20_000
    assert 1000 <= found["fast"].median_us < found["slow"].median_us
    for timing in found.values():
        assert timing.low_us is not None and timing.high_us is not None
        assert timing.low_us <= timing.median_us <= timing.high_us
    changes = sum(one != other for one, other in itertools.pairwise(turns))
    assert changes >= 2 * 9  # repeats times rounds: they take turns


def test_a_slow_call_is_not_made_a_hundred_times() -> None:
    calls = 0

    def slow() -> None:
        nonlocal calls
        calls += 1
        time.sleep(0.8)

    timing = time_all({"slow": slow}, repeats=1, device="cpu")["slow"]
    assert timing.median_us >= 800_000
    assert timing.low_us is timing.high_us is None  # timed once
    assert calls <= 5


def test_what_is_faster_outside() -> None:
    """On a busy machine a sleep may be longer, never shorter: neither timing is near a limit."""
    functions = {"eager": lambda: time.sleep(0.004), "inductor": lambda: time.sleep(0.004)}
    timings = {"eager": Timing(1e6, None, None), "inductor": Timing(2000.0, None, None)}
    add_times_outside(functions, timings, "cpu")
    outside = timings["eager"].outside_graph_us
    assert outside is not None and 4000 <= outside < 1e6
    assert timings["inductor"].outside_graph_us is None
