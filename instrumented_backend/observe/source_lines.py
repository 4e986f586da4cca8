"""The report's section `lines`: what was seen, by the program's own lines."""

import math
from collections.abc import Mapping, Sequence

from instrumented_backend.observe.ops.captured import GraphOps
from instrumented_backend.observe.ops.estimate import Estimate, Sampled
from instrumented_backend.observe.ops.section import eager_calls
from instrumented_backend.observe.ops.spread import SPREAD
from instrumented_backend.observe.source_files import SourceFiles
from instrumented_backend.records import (
    GraphRecord,
    LineRecord,
    Note,
    Report,
    notes,
)

MAX_LINES = 20_000
MAX_CALLED = 12  # functions of one line that are named

LinePlace = tuple[str | None, int | None]
NOWHERE: LinePlace = (None, None)


class _Lines:
    """The records, by place, each made when it is first needed."""

    def __init__(self) -> None:
        self.records: dict[LinePlace, LineRecord] = {}
        self.left_out = 0

    def at(self, file: str | None, line: int | None, function: str | None = None) -> LineRecord:
        place = NOWHERE if file is None or line is None else (file, line)
        record = self.records.get(place)
        if record is None:
            if len(self.records) >= MAX_LINES and place != NOWHERE:
                self.left_out += 1
                return self.at(None, None)
            record = self.records[place] = LineRecord(*place)
        record.function = record.function or (None if place == NOWHERE else function)
        return record


def add_lines(
    report: Report,
    graphs: Sequence[tuple[GraphOps | None, GraphRecord]],
    found: Estimate | None,
    nested: Mapping[int, int],
    sources: SourceFiles,
) -> None:
    """Fill in ``report.lines`` and ``report.files`` from the rest of it.

    ``found`` has the eager ops, None where they are unknown; ``nested``, by region key, the calls
    inside of another graph's, which are not counted.
    """
    lines = _Lines()
    for ops, record in graphs:
        if ops is not None:
            _add_captured(lines, ops, record, nested)
    if found is not None:
        _add_eager(lines, found)
    _add_causes(lines, report)
    _add_kernels(lines, report)
    if report.ops.captured.ops is not None:
        for one in lines.records.values():
            one.captured_ops = one.captured_ops or 0
            one.forward_ops, one.backward_ops = one.forward_ops or 0, one.backward_ops or 0
    if found is not None:
        for one in lines.records.values():
            one.eager_ops, one.eager_time_us = one.eager_ops or 0, one.eager_time_us or 0.0
    report.lines = sorted(lines.records.values(), key=_costliest_first)
    report.files = sources.records(line.file for line in report.lines)
    if lines.left_out:
        text = f"more than {MAX_LINES} lines: what was on further ones is on no known line"
        report.add_notes(Note(notes.NOT_LISTED, text))


def _costliest_first(record: LineRecord) -> tuple[float, int, str, int]:
    return (
        -(record.eager_time_us or 0.0),
        -(record.captured_ops or 0),
        record.file or "",
        record.line or 0,
    )


def _add_captured(
    lines: _Lines, ops: GraphOps, record: GraphRecord, nested: Mapping[int, int]
) -> None:
    calls, backward_calls = eager_calls(record, nested)
    compiled_autograd = record.direction == "backward"
    for of_line, times, is_backward in (
        (ops.forward_lines, backward_calls if compiled_autograd else calls, compiled_autograd),
        (None if compiled_autograd else ops.backward_lines, backward_calls, True),
    ):
        for line, count in (of_line or {}).items():
            one = lines.at(line.file, line.line, line.function)
            one.forward_ops = (one.forward_ops or 0) + (0 if is_backward else count * times)
            one.backward_ops = (one.backward_ops or 0) + (count * times if is_backward else 0)
            one.captured_ops = one.forward_ops + one.backward_ops
            if record.graph is not None and record.graph not in one.graphs:
                one.graphs.append(record.graph)
    for (line, name), count in ops.nodes.items():
        called = lines.at(line.file, line.line, line.function).called
        if name in called or len(called) < MAX_CALLED:
            called[name] = called.get(name, 0) + count


def _add_eager(lines: _Lines, found: Estimate) -> None:
    """Whole ops whose sum is the summary's: what is cut off goes where most of it was."""
    sums: dict[int, tuple[LineRecord, Sampled]] = {}
    for (_, line), sampled in found.by_line.items():
        record = lines.at(line.file, line.line)
        if line.function is not None and record.file is not None:
            record.function = line.function  # with its class, which Dynamo's stacks don't have
        _, total = sums.setdefault(id(record), (record, Sampled()))
        total.add(sampled.ops, sampled.ns)
        total.ops_variance += sampled.ops_variance
        total.gpu_ops, total.gpu_ns = total.gpu_ops + sampled.gpu_ops, total.gpu_ns + sampled.gpu_ns
    known_ops = math.fsum(total.ops for _, total in sums.values())
    known_ns = math.fsum(total.ns for _, total in sums.values())
    rest = found.eager.ops - known_ops, found.eager.ns - known_ns
    if abs(rest[0]) > 1e-6 * max(1.0, known_ops) or abs(rest[1]) > 1e-6 * max(1.0, known_ns):
        record = lines.at(None, None)
        _, total = sums.setdefault(id(record), (record, Sampled()))
        total.add(*rest)
    wanted = round(found.eager.ops)
    whole = {key: math.floor(total.ops) for key, (_, total) in sums.items()}
    cut = sorted(sums, key=lambda key: whole[key] - sums[key][1].ops)
    for key in cut[: max(0, wanted - sum(whole.values()))]:
        whole[key] += 1
    for key, (record, total) in sums.items():
        record.eager_ops = whole[key]
        record.eager_time_us = total.ns / 1e3
        record.eager_gpu_us = total.gpu_us
        record.eager_ops_spread = SPREAD * total.ops_error


def _add_causes(lines: _Lines, report: Report) -> None:
    for number, broken in enumerate(report.breaks):
        lines.at(broken.file, broken.line, broken.function).breaks.append(number)
    for number, again in enumerate(report.recompiles):
        line = lines.at(again.file, again.line, again.function)
        line.recompiles += again.count
        line.recompile_s += again.compile_s
        for guard in again.guards:
            if guard.file is not None and guard.line is not None:
                known = lines.at(guard.file, guard.line).guards
                if number not in known:
                    known.append(number)


def _add_kernels(lines: _Lines, report: Report) -> None:
    for number, kernel in enumerate(report.kernels):
        places = [lines.at(file, line) for file, line in kernel.places if line is not None]
        for record in places or [lines.at(None, None)]:
            record.kernels.append(number)
            if kernel.device_time_total_us is not None:
                part = kernel.device_time_total_us / max(1, len(places))
                record.device_time_us = (record.device_time_us or 0.0) + part
