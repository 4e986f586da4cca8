from pathlib import Path

import pytest
from traces import annotation, kernel, write

from instrumented_backend.traces.event_stream import TraceError
from instrumented_backend.traces.time_range import TimeRange
from instrumented_backend.traces.trace_file import Trace, read_trace


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    """100 µs, with steps 3 (10 to 40 µs), 4 (40 to 60) and 5 (70 to 90)."""
    events = [
        kernel(0, 5),
        annotation(10, 30, "ProfilerStep#3"),
        annotation(40, 20, "ProfilerStep#4"),
        annotation(70, 20, "ProfilerStep#5"),
        kernel(95, 5),
    ]
    return read_trace(write(tmp_path / "t.json", events))


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("ProfilerStep#3", (10, 40)),
        ("#4", (40, 60)),
        ("#3-4", (10, 60)),
        ("ProfilerStep#4-#5", (40, 90)),
        ("#5-99", (70, 90)),
        ("10-20", (10, 20)),
        ("0.01-0.02ms", (10, 20)),
        ("0.01ms-0.02", (10, 20)),
        ("0.01ms-20us", (10, 20)),
        ("0.00005s-", (50, 100)),
        ("-30us", (0, 30)),
        ("50us - 1s", (50, 100)),
    ],
)
def test_ranges(trace: Trace, text: str, us: tuple[int, int]) -> None:
    low, high = TimeRange.parse(text).within(trace)
    assert (low, high) == (us[0] * 1000, us[1] * 1000)


@pytest.mark.parametrize("text", ["", "-", "3", "ten-20", "#", "10m-20m", "1-2-3", "-5-10"])
def test_no_ranges(text: str) -> None:
    with pytest.raises(ValueError, match="is no range; give steps"):
        TimeRange.parse(text)


@pytest.mark.parametrize(
    ("text", "said"), [("20-10", "ends before it starts"), ("#5-3", "step 3 is before step 5")]
)
def test_backward_ranges(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        TimeRange.parse(text)


def test_a_part_that_is_not_in_the_trace(trace: Trace, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no such step; the steps in it: 3 to 5"):
        TimeRange.parse("#9").within(trace)
    with pytest.raises(TraceError, match=r"the range is behind its end, at 100\.0 us"):
        TimeRange.parse("100us-").within(trace)
    without_steps = read_trace(write(tmp_path / "u.json", [kernel(0, 5)]))
    with pytest.raises(TraceError, match="the steps in it: none"):
        TimeRange.parse("#1").within(without_steps)
