"""From what the op meter's windows saw to the whole run.

Each graph's direction has its own gap: the ops that run after its calls, until the next region.
Calls are counted exactly, so that a gap seen in n of N calls stands for N/n times what was seen in
it. The first three observed calls are booked apart and stand for themselves: they allocate
optimizer state, load kernels, record CUDA graphs. Where every call was seen, nothing is
extrapolated.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from instrumented_backend.observe.native.build import Sums
from instrumented_backend.observe.native.keys import early_gap, key_before, late_gap
from instrumented_backend.observe.ops.lines import UNKNOWN, Line
from instrumented_backend.observe.ops.meter import Observed
from instrumented_backend.records import EagerOpRecord, MissingRecord

SPREAD = 2.0  # standard errors, to either side


@dataclass
class Estimate:
    """The run's totals; ``*_error`` is the standard error, 0 where nothing was extrapolated."""

    exact: bool
    calls: int = 0
    observed_calls: int = 0
    unseen_calls: int = 0  # of graphs that no window saw
    nested: dict[int, int] = field(default_factory=dict)
    """Region key → calls inside another region, whose ops are the outer one's."""
    eager_ops: float = 0.0
    eager_ops_error: float = 0.0
    eager_ns: float = 0.0
    eager_ns_error: float = 0.0
    region_ns: dict[int, float] = field(default_factory=dict)  # by region key
    region_ns_error: float = 0.0
    unaccounted_s: float | None = None  # of the run; None where nothing was extrapolated
    eager: list[EagerOpRecord] = field(default_factory=list)
    missing: list[MissingRecord] = field(default_factory=list)
    by_place: dict[tuple[int, Line], list[float]] = field(default_factory=dict)
    """(region key before the gap, line) → [ops, nanoseconds]."""


def estimate(observed: Observed, calls: Mapping[int, int]) -> Estimate:
    """``calls`` has the exact number of calls of each region key."""
    factors = _Factors(observed.gaps, calls)
    result = Estimate(
        exact=observed.whole and not observed.lost,
        calls=sum(calls.values()),
        observed_calls=factors.observed_calls,
        unseen_calls=factors.unseen_calls,
        nested=factors.nested,
    )
    _add_eager(result, observed, factors)
    _add_errors(result, observed, factors)
    if not result.exact:
        result.unaccounted_s = max(0.0, observed.elapsed_s - factors.rounds_ns(calls) / 1e9)
    for key in calls:
        gaps = early_gap(key), late_gap(key)
        if factors.sums(gaps[0]).n:
            result.region_ns[key] = sum(
                factors.sums(gap).region_ns * factors.of(gap) for gap in gaps
            )
    return result


class _Factors:
    """How often what was seen in each gap happened in the whole run."""

    def __init__(self, gaps: list[Sums], calls: Mapping[int, int]) -> None:
        self._gaps = gaps
        self._factors: dict[int, float] = {}
        self.observed_calls = self.unseen_calls = 0
        self.nested: dict[int, int] = {}
        for key, count in calls.items():
            early, late = self.sums(early_gap(key)).n, self.sums(late_gap(key)).n
            nested = self.sums(early_gap(key)).nested
            self.observed_calls += int(early + late + nested)
            if nested:
                self.nested[key] = round(count * nested / (early + late + nested))
                count -= self.nested[key]
            if not early:
                self.unseen_calls += count
            elif late:
                self._factors[late_gap(key)] = max(1.0, (count - early) / late)
            else:
                self._factors[early_gap(key)] = max(1.0, count / early)

    def sums(self, gap: int) -> Sums:
        return self._gaps[gap] if gap < len(self._gaps) else Sums()

    def of(self, gap: int) -> float:
        return self._factors.get(gap, 1.0)

    def rounds_ns(self, calls: Iterable[int]) -> float:
        """How long all calls took with what the program did after each."""
        total = 0.0
        for gap in (gap for key in calls for gap in (early_gap(key), late_gap(key))):
            sums = self.sums(gap)
            if sums.rounds:
                total += self.of(gap) * sums.n * sums.round_ns / sums.rounds
            else:
                total += self.of(gap) * sums.region_ns
        return total

    def extrapolated(self) -> Iterable[tuple[Sums, float]]:
        return [(self.sums(gap), factor) for gap, factor in self._factors.items() if factor > 1.0]


def _add_eager(result: Estimate, observed: Observed, factors: _Factors) -> None:
    by_name: dict[str, list[float]] = {}
    by_line: dict[tuple[str, Line], list[float]] = {}
    for entry in observed.entries:
        factor = factors.of(entry.gap)
        count, time_ns = entry.count * factor, entry.time_ns * factor
        result.eager_ops += count
        result.eager_ns += time_ns
        _accumulate(by_name, entry.name, count, time_ns)
        lines = observed.lines.get((entry.name, entry.gap, entry.ordinal)) or {UNKNOWN: [1.0, 1.0]}
        weights = [sum(sums[i] for sums in lines.values()) or 1.0 for i in range(2)]
        for line, sums in lines.items():
            share = sums[0] / weights[0], sums[1] / weights[1]
            _accumulate(by_line, (entry.name, line), count * share[0], time_ns * share[1])
            place = key_before(entry.gap), line
            _accumulate(result.by_place, place, count * share[0], time_ns * share[1])
    total_ns = result.eager_ns or 1.0
    result.eager = [
        EagerOpRecord(name, round(count), time_ns / 1e3, 100 * (time_ns / total_ns))
        for name, (count, time_ns) in _by_time(by_name)
    ]
    result.missing = [
        MissingRecord(
            name,
            line.file,
            line.line,
            line.function,
            max(1, round(count)),  # a line that was met, by samples of more than one op each
            time_ns / 1e3,
            100 * (time_ns / total_ns),
        )
        for (name, line), (count, time_ns) in _by_time(by_line)
    ]


def _accumulate(sums: dict[Any, list[float]], key: Any, count: float, time_ns: float) -> None:
    known = sums.setdefault(key, [0.0, 0.0])
    known[0] += count
    known[1] += time_ns


def _by_time(sums: dict[Any, list[float]]) -> list[tuple[Any, list[float]]]:
    return sorted(sums.items(), key=lambda item: -item[1][1])


def _add_errors(result: Estimate, observed: Observed, factors: _Factors) -> None:
    variances = {"ops": 0.0, "op_ns": 0.0, "region_ns": 0.0}
    for sums, factor in factors.extrapolated():
        for name in variances:
            variances[name] += _variance(sums, name, factor)
    result.eager_ops_error = math.sqrt(variances["ops"])
    result.eager_ns_error = math.sqrt(variances["op_ns"])
    result.region_ns_error = math.sqrt(variances["region_ns"])


def _variance(sums: Sums, name: str, factor: float) -> float:
    """Of the total over N = factor * n calls, of which n were seen, drawn without replacement.

    N² · s²/n · (1 - n/N), with s² the variance from call to call; infinite for a single call.
    """
    n = sums.n
    if n < 2:
        return math.inf
    total, squares = getattr(sums, name), getattr(sums, f"{name}2")
    sample_variance = max(0.0, squares - total * total / n) / (n - 1)
    return float((factor * n) ** 2 * sample_variance / n * (1 - 1 / factor))
