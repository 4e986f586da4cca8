"""Figures as text, each in the unit that suits it."""

import math
import signal

# In µs, each from where it is used on: 119 s, then 2 min.
_TIMES = (("h", 3.6e9, 7.2e9), ("min", 6e7, 1.2e8), ("s", 1e6, 1e6), ("ms", 1e3, 1e3))
_BYTES = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3))


def seconds(value: float) -> str:
    """``"41.2 s"``, ``"0.75 s"``, ``"17.2 min"``: of what is counted in seconds, however short."""
    unit, size = _of_time(value * 1e6)
    if unit in ("min", "h"):
        return f"{_three(value * 1e6 / size)} {unit}"
    return f"{value:.1f} s" if value >= 10 else f"{value:.2f} s"


_LONGEST_S = 1e15  # a sum may be infinite
_LONG = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))


def elapsed(value: float) -> str:
    """``"23 s"``, ``"4 min 12 s"``, ``"3 d 4 h"``: of what goes on, in its two largest units."""
    left = int(min(max(0.0, value), _LONGEST_S))
    for place, (unit, size) in enumerate(_LONG[:-1]):
        if left >= size:
            smaller, of = _LONG[place + 1]
            rest = left % size // of
            return f"{left // size} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{left} s"


def duration(us: float) -> str:
    """``"41.2 ms"``"""
    unit, size = _of_time(us)
    return f"{_three(us / size)} {unit}"


def durations(part_us: float, whole_us: float) -> str:
    """``"41.2/45 ms"``: both in the unit that suits the larger one."""
    unit, size = _of_time(whole_us)
    return f"{_three(part_us / size)}/{_three(whole_us / size)} {unit}"


def _of_time(us: float) -> tuple[str, float]:
    """A unit, and how many µs it has."""
    for unit, size, least in _TIMES:
        if us >= least:
            return unit, size
    return "µs", 1.0


def _three(value: float) -> str:
    """Three digits, and all of those before the point: never an exponent where it is large."""
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:.3g}"


def whole(value: int) -> str:
    """``"1,225,530"``"""
    return f"{value:,}"


def milliseconds(us: float) -> str:
    """``"1,234.567 ms"``: of what is compared with a profile, which shows milliseconds."""
    return f"{us / 1e3:,.3f} ms"


def size(bytes_: float) -> str:
    """``"8.2 KB"``"""
    for unit, of in _BYTES:
        if bytes_ >= of:
            return f"{_three(bytes_ / of)} {unit}"
    return f"{bytes_:.0f} B"


def signal_name(number: int) -> str:
    """``"SIGTERM"``; Python has no names for most of the real-time ones."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def percent(value: float | None) -> str:
    """``"12.3 %"``"""
    return "-" if value is None else f"{value:.1f} %"


def whole_percent(value: float) -> str:
    """``"12 %"``"""
    return f"{value:.0f} %"


def share(value: float | None) -> str:
    """``"12.3"`` for 0.123, in a column of percentages."""
    return "-" if value is None else f"{100 * value:.1f}"


def figure(value: float | None, digits: int) -> str | None:
    """With that many digits, but never with an exponent where it is large."""
    if value is None:
        return None
    return f"{value:,.0f}" if value >= 10 ** (digits - 1) else f"{value:.{digits}g}"


def with_spread(number: str, spread: float | None) -> str:
    """``"280 ± 4"``, of a count; nothing is added to one that is exact. Rounded up, to hold."""
    return f"{number} ± {math.ceil(spread):,}" if spread else number


# How a column is shown whose name ends like this: its unit in the header, digits in the cells.
COLUMNS = {"_s": ("s", 2), "_us": ("µs", 1), "_pct": ("%", 1)}
