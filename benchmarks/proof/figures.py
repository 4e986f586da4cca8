"""What a measurement gives: a cost with its limit, or a figure beside its oracle's; as tables."""

import json
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from tabulate import tabulate


@dataclass
class Cost:
    """One cost; ``unit`` is "x" for a ratio to Inductor. No ``limit``: for comparison only."""

    what: str
    median: float
    low_quartile: float
    high_quartile: float
    pairs: int
    unit: str
    limit: float | None

    @property
    def ok(self) -> bool:
        return self.limit is None or self.median <= self.limit

    @property
    def cells(self) -> list[str]:
        return [
            self.what,
            f"{self.median:.3f}",
            f"{self.low_quartile:.3f} .. {self.high_quartile:.3f}",
            self.unit,
            str(self.pairs),
            "-" if self.limit is None else f"{self.limit:g}",
            "-" if self.limit is None else "ok" if self.ok else "OVER",
        ]


COST_HEADERS = ("what", "median", "quartiles", "unit", "pairs", "limit", "")


def cost_of(what: str, values: Sequence[float], unit: str, limit: float | None) -> Cost:
    """The median of some pairs' ratios or differences, and the quartiles, interpolated."""
    if len(values) == 1:
        low = median = high = values[0]
    else:
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Cost(what, median, low, high, len(values), unit, limit)


@dataclass
class Figure:
    """One figure of one model. ``limit`` is in percent of the oracle, or in points of a share."""

    model: str
    figure: str
    cache: str
    ours: float | None
    oracle: float
    limit: float
    in_points: bool = False

    @property
    def error(self) -> float | None:
        if self.ours is None:
            return None
        difference = abs(self.ours - self.oracle)
        if self.in_points or not difference:
            return difference
        return 100 * difference / abs(self.oracle) if self.oracle else float("inf")

    @property
    def ok(self) -> bool:
        return self.error is not None and self.error <= self.limit

    @property
    def cells(self) -> list[str]:
        return [
            self.model,
            self.figure,
            self.cache,
            "-" if self.ours is None else f"{self.ours:.6g}",
            f"{self.oracle:.6g}",
            "-" if self.error is None else f"{self.error:.2f}",
            f"{self.limit:g} {'points' if self.in_points else '%'}",
            "ok" if self.ok else "OFF",
        ]


def nearest(value: float, low: float, high: float = math.inf) -> float:
    """The oracle of a figure that may lie anywhere in a range: the range's nearest point."""
    return min(max(value, low), high)


FIGURE_HEADERS = ("model", "figure", "cache", "ours", "oracle", "error", "limit", "")

Rows = Sequence[Cost] | Sequence[Figure]
Row = TypeVar("Row", Cost, Figure)


def table(rows: Rows, headers: Sequence[str]) -> str:
    return tabulate([row.cells for row in rows], headers=headers, disable_numparse=True)


def write_json(path: Path, rows: Rows) -> None:
    path.write_text(json.dumps([{**asdict(row), "ok": row.ok} for row in rows], indent=1))


def measured(rows: Iterable[Row]) -> tuple[list[Row], bool]:
    """The rows, measured one after the other, and whether Ctrl-C ended it before the last."""
    done: list[Row] = []
    try:
        for row in rows:
            done.append(row)
    except KeyboardInterrupt:
        return done, True
    return done, False


def exit_code(rows: Rows, interrupted: bool = False) -> int:
    """1 if a limit is missed, or if nothing was measured at all; after Ctrl-C 130, as in shells."""
    if interrupted:
        return 130
    return 0 if rows and all(row.ok for row in rows) else 1
