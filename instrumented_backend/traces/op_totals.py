"""Sums of what ops launched, by name and in their order; no numpy, for those who only read them."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field

MAX_COURSES = 8  # of ops, of one graph; what takes others is summed by name alone


@dataclass
class OpTotal:
    """Of one op, or of one place in the order of ops; ``kernels`` has ns by name."""

    calls: int = 0
    time_ns: int = 0
    kernels: dict[str, int] = field(default_factory=dict)

    def add(self, other: "OpTotal") -> None:
        self.calls += other.calls
        self.time_ns += other.time_ns
        for name, time_ns in other.kernels.items():
            self.kernels[name] = self.kernels.get(name, 0) + time_ns


@dataclass
class RegionOps:
    """Of all regions of one graph's direction.

    ``courses`` are by the names of the ops in their order, with a total for each of them.
    ``graph_launches`` counts the calls that launched several kernels at once: of CUDA graphs.
    """

    by_name: dict[str, OpTotal] = field(default_factory=dict)
    courses: dict[tuple[str, ...], list[OpTotal]] = field(default_factory=dict)
    graph_launches: int = 0

    def add_region(self, names: tuple[str, ...], totals: list[OpTotal]) -> None:
        for name, total in zip(names, totals, strict=True):
            self.by_name.setdefault(name, OpTotal()).add(total)
        self._add_course(names, totals)

    def add(self, other: "RegionOps") -> None:
        for name, total in other.by_name.items():
            self.by_name.setdefault(name, OpTotal()).add(total)
        for names, totals in other.courses.items():
            self._add_course(names, totals)
        self.graph_launches += other.graph_launches

    def _add_course(self, names: tuple[str, ...], totals: list[OpTotal]) -> None:
        if names not in self.courses and len(self.courses) >= MAX_COURSES:
            return
        known = self.courses.setdefault(names, [OpTotal() for _ in names])
        for mine, total in zip(known, totals, strict=True):
            mine.add(total)


def together(
    first: Mapping[int, RegionOps], second: Mapping[int, RegionOps]
) -> dict[int, RegionOps]:
    """The sums, by region key; neither of the two is changed."""
    result = copy.deepcopy(dict(first))
    for key, found in second.items():
        result.setdefault(key, RegionOps()).add(found)
    return result
