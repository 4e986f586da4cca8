"""What windows stand for, brought to the numbers that are known of all calls from Python.

`called.py` has these. How long ops of a name take, and on which of several lines they are, is as
windows saw it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from instrumented_backend.observe.ops.called import Number
from instrumented_backend.observe.ops.scaled import Scaled


class Windows(NamedTuple):
    """Of one name, how many ops windows have: seen for themselves, and in others like them."""

    seen: float = 0.0
    like: float = 0.0

    def times(self, ops: float) -> float:
        """How often the others are to be taken for all to be ``ops``. What was seen stays."""
        return max(0.0, ops - self.seen) / self.like


def windows_of(estimated: Iterable[Scaled], known: Mapping[str, Number]) -> dict[str, Windows]:
    """By name, for those whose number is known."""
    seen: defaultdict[str, float] = defaultdict(float)
    like: defaultdict[str, float] = defaultdict(float)
    for each in estimated:
        of_all = like if each.ops_factor > 1 else seen
        for name, count in each.part.counts.items():
            if name in known:
                of_all[name] += count * each.ops_factor
    return {name: Windows(seen[name], like[name]) for name in {*seen, *like}}


def calibrated(
    estimated: list[Scaled], times: Mapping[str, float], limit_ns: float
) -> list[Scaled]:
    """All that stands for some gaps, which took so long: ops take no longer than that."""
    if not any(name in times for each in estimated for name in each.part.counts):
        return estimated
    found = [replace(each, times=times) if each.ops_factor > 1 else each for each in estimated]
    fixed_ns = sum(each.ns for each in found if not each.times)
    other_ns = sum(each.ns for each in found if each.times)
    share = min(1.0, max(0.0, limit_ns - fixed_ns) / other_ns) if other_ns else 1.0
    return [
        replace(each, ns_factor=each.ns_factor * share) if each.times else each for each in found
    ]
