"""Figures in the unit that suits them."""

import pytest

from instrumented_backend import units


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (units.seconds(9.994), "9.99 s"),
        (units.seconds(41.25), "41.2 s"),
        (units.seconds(119.0), "119.0 s"),
        (units.seconds(17.2 * 60), "17.2 min"),
        (units.seconds(119 * 60), "119 min"),
        (units.seconds(3.5 * 3600), "3.5 h"),
        (units.seconds(1234 * 3600), "1,234 h"),
        (units.durations(4.1e9, 5.2e9), "68.3/86.7 min"),  # 4,100 of 5,200 s
        (units.durations(4.1e9, 5.2e10), "1.14/14.4 h"),
        (units.duration(999.9), "1,000 µs"),  # and no exponent
        (units.size(999.9e6), "1,000 MB"),
        (units.size(2.5e15), "2,500 TB"),
        (units.whole(1_225_530), "1,225,530"),
        (units.duration(0.5), "0.5 µs"),
        (units.duration(999.0), "999 µs"),
        (units.duration(1000.0), "1 ms"),
        (units.duration(41_250.0), "41.2 ms"),
        (units.duration(2_500_000.0), "2.5 s"),
        (units.durations(41.2, 45.0), "41.2/45 µs"),
        (units.durations(9_000.0, 10_000.0), "9/10 ms"),  # the unit of the larger
        (units.durations(500.0, 2_000_000.0), "0.0005/2 s"),
        (units.milliseconds(1_234_567.0), "1,234.567 ms"),
        (units.size(999), "999 B"),
        (units.size(8_200), "8.2 KB"),
        (units.size(16_000_000), "16 MB"),
        (units.size(1.5e9), "1.5 GB"),
        (units.percent(None), "-"),
        (units.percent(12.345), "12.3 %"),
        (units.whole_percent(61.4), "61 %"),
        (units.share(0.1234), "12.3"),
        (units.share(None), "-"),
        (units.figure(None, 3), None),
        (units.figure(0.012345, 3), "0.0123"),
        (units.figure(123456.0, 3), "123,456"),
        (units.with_spread("280", 3.2), "280 ± 4"),
        (units.with_spread("280", 0.0), "280"),
        (units.with_spread("280", None), "280"),
    ],
)
def test_figures(shown: str | None, text: str | None) -> None:
    assert shown == text
