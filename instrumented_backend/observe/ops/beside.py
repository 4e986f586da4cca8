"""Ops whose number is not known, on the same lines as others whose number is.

Indexing, or a function that runs this or that, is not to be told from calls. But what a line runs
it runs together: where windows met a line's other ops too often, they did so with these.
"""

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from instrumented_backend.observe.ops.called import Number
from instrumented_backend.observe.ops.lines import UNKNOWN, Line

ALL = 0.95  # of the ops of a name
CLOSE = 0.01  # by what part ops of one line may have been met more often than others there


class Sums(Protocol):
    """Ops as windows have them."""

    @property
    def ops(self) -> float: ...
    @property
    def ops_variance(self) -> float: ...
    @property
    def ops_error(self) -> float: ...


class _Told(NamedTuple):
    """What a line's ops of known numbers tell of all that it runs."""

    names: int
    times: float  # as many as windows have
    error: float  # a standard error
    shared: float  # the square of what windows may have wrong of all that the line runs, as a part


def beside(
    by_name: Mapping[str, Sums],
    by_line: Mapping[tuple[str, Line], Sums],
    windows: Mapping[str, float],
) -> dict[str, Number]:
    """Numbers of more ops, by name; not where windows know one as well themselves.

    ``windows``: how many they have of the ops whose number is known. The others are as they have
    them.
    """
    of_line: defaultdict[Line, list[str]] = defaultdict(list)
    of_name: defaultdict[str, list[Line]] = defaultdict(list)
    for (name, line), sums in by_line.items():
        if name not in windows:
            of_name[name].append(line)
        elif windows[name] and line != UNKNOWN and sums.ops >= ALL * by_name[name].ops > 0:
            of_line[line].append(name)
    told = {line: _told(names, by_name, windows) for line, names in of_line.items()}
    found = {}
    for name, lines in of_name.items():
        ops = {line: by_line[name, line].ops for line in lines if line in told}
        own = by_name[name]
        if not own.ops or sum(ops.values()) < ALL * own.ops:
            continue
        number = sum(each * told[line].times for line, each in ops.items())
        apart = number - sum(ops.values())
        error = sum(each * told[line].error for line, each in ops.items())
        shared = min(told[line].shared for line in ops)
        names = min(told[line].names for line in ops)
        variance = own.ops_variance / own.ops**2
        error = math.hypot(
            error,
            number * math.sqrt(max(0.0, variance - shared) + CLOSE**2),
            own.ops_error / names,  # one may be of another branch of the line
        )
        # Where windows are off by more than they say, they are so in all that is as certain.
        if variance > shared / 4 and error < math.hypot(own.ops_error, apart):
            found[name] = Number(own.ops + apart, error)
    return found


def _told(names: list[str], by_name: Mapping[str, Sums], windows: Mapping[str, float]) -> _Told:
    """They may disagree, or be few: of one, what windows have is within two standard errors."""
    seen = sum(windows[name] for name in names)
    times = sum(by_name[name].ops for name in names) / seen
    apart = sum(windows[name] * (by_name[name].ops / windows[name] - times) ** 2 for name in names)
    few = (times - 1) / (len(names) + 1)
    return _Told(
        len(names),
        times,
        math.hypot(math.sqrt(apart / seen), few),
        min(by_name[name].ops_variance / by_name[name].ops ** 2 for name in names),
    )
