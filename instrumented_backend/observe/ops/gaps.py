"""The report's gaps: what ran between graphs' calls, optimizer steps and the loading of data."""

from instrumented_backend.observe.native.keys import is_backward
from instrumented_backend.observe.ops.estimate import Estimate, Gaps
from instrumented_backend.observe.ops.lines import Line
from instrumented_backend.observe.ops.observed import Observed
from instrumented_backend.records import GapLineRecord, GapRecord

MAX_GAPS = 200
MAX_LINES = 5  # of one kind of gap


def gap_records(observed: Observed, found: Estimate) -> list[GapRecord]:
    """Those that took the most time, the longest first; of other threads none."""
    longest = sorted(found.by_gap.items(), key=lambda item: -item[1].ns)[:MAX_GAPS]
    return [_record(observed, mark, to, gaps) for (mark, to), gaps in longest if gaps.ns]


def _record(observed: Observed, number: int, to: int, gaps: Gaps) -> GapRecord:
    mark = observed.marks[number]
    return GapRecord(
        graph=_graph(mark.region),
        backward=is_backward(mark.region),
        event=mark.event,
        inside=mark.begins,
        in_data=mark.in_data,
        to_graph=_graph(to),
        to_backward=is_backward(to),
        to_event=observed.events.get(-to),
        count=gaps.n,
        time_us=gaps.ns / 1e3,
        eager_time_us=min(gaps.ns, gaps.eager.ns) / 1e3,
        lines=_lines(gaps),
    )


def _graph(key: int) -> int | None:
    """Of a `region_key`."""
    return (key - 1) // 2 if key > 0 else None


def _lines(gaps: Gaps) -> list[GapLineRecord]:
    by_line: dict[Line, dict[str, float]] = {}
    for (op, line), ns in gaps.by_line.items():
        by_line.setdefault(line, {})[op] = ns
    costs = {line: sum(ops.values()) for line, ops in by_line.items()}
    return [
        GapLineRecord(
            line.file,
            line.line,
            line.function,
            max(by_line[line], key=lambda op: by_line[line][op]),
            costs[line] / 1e3,
        )
        for line in sorted(costs, key=lambda line: -costs[line])[:MAX_LINES]
        if costs[line]
    ]
