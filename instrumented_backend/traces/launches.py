"""Which call on the host launched each kernel and copy, by the correlation ids of CUPTI."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from instrumented_backend.traces.intervals import Times, union
from instrumented_backend.traces.trace_file import REGION_MARKS, HostSpans, Trace


class Launches(NamedTuple):
    """For each of the trace's activities: the call that launched it, and when it began.

    Where no call is known, ``call`` is -1 and ``start`` means nothing.
    """

    call: npt.NDArray[np.int64]
    start: Times

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        return self.call >= 0


def find_launches(trace: Trace) -> Launches:
    """Match activities and calls by correlation id.

    Several calls share an id where traces of several processes were merged into one file: then it
    is the last of them that began before the activity did.
    """
    calls, wanted = trace.launch_calls, trace.activities.correlation
    identified = np.flatnonzero(calls.correlation >= 0)
    if not len(identified) or not len(wanted):
        return Launches(np.full(len(wanted), -1), np.zeros(len(wanted), dtype=np.int64))
    ordered = identified[np.lexsort((calls.start[identified], calls.correlation[identified]))]
    ids = calls.correlation[ordered]
    position = np.searchsorted(ids, wanted, side="left")
    same_id = np.searchsorted(ids, wanted, side="right") - position
    known = (wanted >= 0) & (same_id > 0)
    position[~known] = 0
    shared = np.flatnonzero(known & (same_id > 1))
    if len(shared):
        before = _last_before(
            ids, calls.start[ordered], wanted[shared], trace.activities.start[shared]
        )
        # An activity that seems to begin before every such call: clocks differ by a little.
        position[shared] = np.maximum(position[shared], before)
    call = np.where(known, ordered[position], -1)
    return Launches(call, calls.start[call])


def _last_before(ids: Times, starts: Times, wanted: Times, times: Times) -> Times:
    """The last of the calls, sorted by id and start, that has the wanted id and began in time.

    Where there is none, the number is one of an earlier id's, or -1.
    """
    everyone = np.concatenate((ids, wanted))
    is_call = np.arange(len(everyone)) < len(ids)
    order = np.lexsort((~is_call, np.concatenate((starts, times)), everyone))
    last = np.maximum.accumulate(np.where(is_call[order], order, -1))
    result = np.empty(len(everyone), dtype=np.int64)
    result[order] = last
    return result[len(ids) :]


def captured_by(trace: Trace) -> str | None:
    """The best mark of compiled graphs' calls that the trace has."""
    return next((mark for mark in REGION_MARKS[:2] if mark in trace.regions), None)


def in_regions(
    times: Times, threads: npt.NDArray[np.int64], regions: HostSpans
) -> npt.NDArray[np.bool_]:
    """Which of the calls at ``times`` on ``threads`` were made inside a region of their thread."""
    inside = np.zeros(len(times), dtype=bool)
    for thread in np.unique(regions.thread):
        of_thread = regions.thread == thread
        spans, _ = union(regions.start[of_thread], regions.end[of_thread])
        here = threads == thread
        inside[here] = spans.contain(times[here])
    return inside
