"""In which of some spans on the host each kernel was launched, by correlation ids."""

import numpy as np
import numpy.typing as npt

from instrumented_backend.traces.intervals import Times
from instrumented_backend.traces.launches import Launches
from instrumented_backend.traces.trace_file import HostSpans, Trace

Indices = npt.NDArray[np.int64]


def span_of(times: Times, threads: Indices, spans: HostSpans) -> Indices:
    """For each call on a thread the index of the span that it was made in; -1: in none.

    Of spans inside each other it is the one that began last, as long as that lasts.
    """
    found = np.full(len(times), -1, dtype=np.int64)
    for thread in np.unique(spans.thread):
        of_thread = np.flatnonzero(spans.thread == thread)
        of_thread = of_thread[np.lexsort((-spans.end[of_thread], spans.start[of_thread]))]
        here = np.flatnonzero(threads == thread)
        before = np.searchsorted(spans.start[of_thread], times[here], side="right") - 1
        inside = (before >= 0) & (times[here] < spans.end[of_thread[before]])
        found[here[inside]] = of_thread[before[inside]]
    return found


def outermost(spans: HostSpans, chosen: Indices) -> Indices:
    """Those of the chosen spans that no other one of them encloses, by thread and start."""
    found = []
    for thread in np.unique(spans.thread[chosen]):
        here = chosen[spans.thread[chosen] == thread]
        here = here[np.lexsort((-spans.end[here], spans.start[here]))]
        ends = np.maximum.accumulate(spans.end[here])
        opens = np.concatenate(([True], spans.start[here][1:] >= ends[:-1]))
        found.append(here[opens])
    return np.concatenate(found) if found else chosen


def launched_in(trace: Trace, launches: Launches, spans: HostSpans) -> Indices:
    """For each kernel and copy the index of the span that it was launched in; -1: none known."""
    found = np.full(len(launches.call), -1, dtype=np.int64)
    known = np.flatnonzero(launches.known)
    threads = trace.launch_calls.thread[launches.call[known]]
    found[known] = span_of(launches.start[known], threads, spans)
    return found


def selected(spans: HostSpans, chosen: Indices) -> HostSpans:
    """The chosen ones, in that order."""
    return HostSpans(
        spans.start[chosen], spans.end[chosen], spans.thread[chosen], spans.correlation[chosen]
    )
