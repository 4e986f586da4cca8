"""Sets of times as sorted, disjoint intervals, in numpy; integers, so that sums are exact."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.int64]


class Intervals(NamedTuple):
    """``[start, end)`` pairs, sorted; those that `union` returns neither overlap nor touch."""

    start: Times
    end: Times

    def measure(self, low: int | None = None, high: int | None = None) -> int:
        """Summed length of what lies within ``[low, high]``."""
        start = self.start if low is None else np.maximum(self.start, low)
        end = self.end if high is None else np.minimum(self.end, high)
        return int(np.maximum(end - start, 0).sum())

    def contain(self, times: Times) -> npt.NDArray[np.bool_]:
        """Which of ``times`` lie inside an interval."""
        if not len(self.start):
            return np.zeros(len(times), dtype=bool)
        before = np.searchsorted(self.start, times, side="right") - 1
        return (before >= 0) & (times < self.end[before])


def union(start: Times, end: Times) -> tuple[Intervals, npt.NDArray[np.int64]]:
    """The times covered by any of the intervals, which come in any order and overlap as they like.

    With them, for each resulting interval, the index of the input that opens it.
    """
    if not len(start):
        return Intervals(start, end), np.zeros(0, dtype=np.int64)
    order = np.argsort(start, kind="stable")
    start = start[order]
    covered = np.maximum.accumulate(end[order])
    opens = np.concatenate(([True], start[1:] > covered[:-1]))
    closes = np.concatenate((opens[1:], [True]))
    return Intervals(start[opens], covered[closes]), order[opens]


def overlay(*parts: Intervals) -> Intervals:
    """The union of several sets of intervals."""
    start = np.concatenate([part.start for part in parts])
    end = np.concatenate([part.end for part in parts])
    return union(start, end)[0]
