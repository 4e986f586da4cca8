"""Joins what the ops inside regions launched on a GPU to the extern calls of the graphs' code.

The n-th extern call of a region is the n-th in the code. Where a region's ops are not those of the
code, in their order, a call has the mean of all calls of its op.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from instrumented_backend.kernels.complete import add_time
from instrumented_backend.kernels.facts import TimeFacts
from instrumented_backend.kernels.wrapper import op_of
from instrumented_backend.observe.device.kernels import calls_in_run
from instrumented_backend.observe.native.keys import region_key
from instrumented_backend.records import GraphRecord, KernelRecord, Note, notes
from instrumented_backend.traces.op_totals import OpTotal, RegionOps


def add_extern_times(
    kernels: Iterable[KernelRecord],
    launched: Mapping[int, RegionOps],
    graphs: Mapping[int | None, GraphRecord],
) -> None:
    """``launched`` is by `region_key`. Graphs that launched no kernel compute elsewhere."""
    externs: defaultdict[int, list[KernelRecord]] = defaultdict(list)
    for kernel in kernels:
        if kernel.language == "extern" and kernel.graph is not None:
            externs[region_key(kernel.graph, kernel.direction == "backward")].append(kernel)
    for key, records in externs.items():
        found = launched.get(key)
        if found is None:
            continue
        if found.graph_launches or any(total.time_ns for total in found.by_name.values()):
            _add(records, found, graphs)


def _add(
    records: list[KernelRecord], found: RegionOps, graphs: Mapping[int | None, GraphRecord]
) -> None:
    ordered = _in_order(records, found)
    same_op = Counter(op_of(record.kernel_name) for record in records)
    for number, record in enumerate(records):
        op = op_of(record.kernel_name)
        total = ordered.get(number) if ordered else found.by_name.get(op)
        if total is None or not total.kernels:
            record.add_note(notes.TIME_UNKNOWN, _why(op, total, found))
            continue
        said = f"time: the mean of {total.calls} calls, in windows"
        if not ordered and same_op[op] > 1:
            said = (
                f"time: the mean of all {total.calls} calls of {op} in this graph, in windows; "
                "which of them are this one is not known: its ops ran in another order than the "
                "code's"
            )
        per_call = {
            name: time_ns / total.calls / 1e3
            for name, time_ns in sorted(total.kernels.items(), key=lambda item: -item[1])
        }
        calls = calls_in_run(record, graphs.get(record.graph))
        mean_us = total.time_ns / total.calls / 1e3
        add_time(record, TimeFacts(mean_us, calls, [Note(notes.TIME, said)], per_call))


def _in_order(records: list[KernelRecord], found: RegionOps) -> dict[int, OpTotal]:
    """The total of each record, by its number, over the regions whose ops are the code's.

    None where the order of the code is not known, or no region kept it. Other ops, such as a
    ``select`` that one of Inductor's functions begins with, may stand between them.
    """
    owners = {
        position: number
        for number, record in enumerate(records)
        for position in record.extern_positions
    }
    if sorted(owners) != list(range(sum(record.calls or 0 for record in records))):
        return {}
    expected = [op_of(records[owners[position]].kernel_name) for position in sorted(owners)]
    names = set(expected)
    result: defaultdict[int, OpTotal] = defaultdict(OpTotal)
    for course, totals in found.courses.items():
        ops = [(name, total) for name, total in zip(course, totals, strict=True) if name in names]
        if [name for name, _ in ops] == expected:
            for position, (_, total) in enumerate(ops):
                result[owners[position]].add(total)
    return dict(result)


def _why(op: str, total: OpTotal | None, found: RegionOps) -> str:
    if found.graph_launches:
        return "time unknown: a CUDA graph launched its kernels, all of the graph's at once"
    if total is not None:
        return f"time unknown: {op} launched no kernel in the windows"
    return f"time unknown: the windows saw no {op} in this graph"
