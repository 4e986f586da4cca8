"""What windows stand for, brought to the numbers that are known of all calls from Python.

`called.py` has these. How long ops of a name take, and on which of several lines they are, is as
windows saw it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from instrumented_backend.observe.ops.called import Number
from instrumented_backend.observe.ops.scaled import Scaled


def times_of(estimated: Iterable[Scaled], known: Mapping[str, Number]) -> dict[str, float]:
    """By name, how often what was ``estimated`` is to be taken for the numbers to come out.

    What was seen for itself stays.
    """
    seen: defaultdict[str, float] = defaultdict(float)
    stood_for: defaultdict[str, float] = defaultdict(float)
    for each in estimated:
        of_all = stood_for if each.ops_factor > 1 else seen
        for name, count in each.part.counts.items():
            if name in known:
                of_all[name] += count * each.ops_factor
    return {
        name: max(0.0, known[name].ops - seen[name]) / ops for name, ops in stood_for.items() if ops
    }


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
