"""What the ops inside compiled regions launched: library kernels, op by op in their order.

Inductor calls what it did not generate (``mm``, convolution, attention) as ops, one after the
other. In a profile each is the outermost op inside its region.
"""

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from instrumented_backend.traces.launches import find_launches
from instrumented_backend.traces.op_totals import OpTotal, RegionOps
from instrumented_backend.traces.spans import Indices, launched_in, outermost, selected, span_of
from instrumented_backend.traces.trace_file import REGION_MARKS, HostSpans, Trace

_AUTOGRADS = ("autograd::", "torch::autograd::")


def is_op(name: str) -> bool:
    """A dispatcher's op, by its namespace: ``aten::mm``; neither torch's marks nor Triton's."""
    return "::" in name and not name.startswith(_AUTOGRADS)


def ops_in_regions(trace: Trace, calls: Iterable[tuple[int, int]]) -> dict[int, RegionOps]:
    """By region key; ``trace`` was read with the spans that `is_op` wants.

    ``calls`` are the regions in the order in which they began: the system's number of the thread,
    and the region's key. A thread on which the trace has another number of them is left out. So is
    what follows a region inside another, up to the end of that one.
    """
    regions = trace.regions.get(REGION_MARKS[0])
    if regions is None:
        return {}
    keys = _keys(trace, regions, calls)
    launches = find_launches(trace)
    chosen, region = _ops_of(trace, regions)
    ops = selected(trace.spans, chosen)
    names = [trace.names[name] for name in trace.spans.name[chosen].tolist()]
    totals = [OpTotal(calls=1) for _ in names]
    length = trace.activities.end - trace.activities.start
    op_of = launched_in(trace, launches, ops)
    for kernel in np.flatnonzero((op_of >= 0) & trace.activities.is_kernel).tolist():
        time_ns = int(length[kernel])
        name = trace.names[trace.activities.name[kernel]]
        totals[op_of[kernel]].add(OpTotal(0, time_ns, {name: time_ns}))
    result: defaultdict[int, RegionOps] = defaultdict(RegionOps)
    of_region: defaultdict[int, list[int]] = defaultdict(list)
    for op, number in enumerate(region.tolist()):
        of_region[number].append(op)
    for number, key in keys.items():
        found = of_region[number]
        result[key].add_region(tuple(names[op] for op in found), [totals[op] for op in found])
    # A call that launched several kernels at once: cudaGraphLaunch.
    known = np.flatnonzero(trace.activities.is_kernel & launches.known)
    several = np.bincount(launches.call[known], minlength=len(trace.launch_calls.start)) > 1
    graphs = np.flatnonzero(several)
    threads = trace.launch_calls.thread[graphs]
    for number in span_of(trace.launch_calls.start[graphs], threads, regions).tolist():
        if number in keys:
            result[keys[number]].graph_launches += 1
    return dict(result)


def _keys(trace: Trace, regions: HostSpans, calls: Iterable[tuple[int, int]]) -> dict[int, int]:
    """The key of each region, by its index: the n-th call of a thread is its n-th region."""
    by_thread: defaultdict[int, list[int]] = defaultdict(list)
    for thread, key in calls:
        by_thread[thread].append(key)
    keys: dict[int, int] = {}
    for thread in np.unique(regions.thread).tolist():
        here = np.flatnonzero(regions.thread == thread)
        here = here[np.argsort(regions.start[here], kind="stable")]
        of_thread = by_thread.get(trace.threads[thread][1], [])
        if len(of_thread) == len(here):
            keys.update(zip(here.tolist(), of_thread, strict=True))
    return keys


def _ops_of(trace: Trace, regions: HostSpans) -> tuple[Indices, Indices]:
    """The outermost ops inside regions, by thread and start, and the region of each.

    Where torch marks the call of the generated code inside a region, only those in that:
    AOTAutograd calls ops of its own before and after it.
    """
    spans = trace.spans
    region = span_of(spans.start, spans.thread, regions)
    inside = (region >= 0) & (spans.end <= regions.end[region])
    marks = trace.regions.get(REGION_MARKS[1])
    if marks is not None:
        marked = np.unique(span_of(marks.start, marks.thread, regions))
        in_mark = span_of(spans.start, spans.thread, marks) >= 0
        inside &= in_mark | ~np.isin(region, marked)
    chosen = outermost(spans, np.flatnonzero(inside))
    return chosen, region[chosen]
