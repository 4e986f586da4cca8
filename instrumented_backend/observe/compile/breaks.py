"""Every cause that kept code out of the graphs, once each: graph breaks and skipped functions."""

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from instrumented_backend.observe.messages.reasons import (
    IN_OPERATOR,
    BreakReason,
    Reason,
    first_hint,
    read_last_reason,
    read_reason,
)
from instrumented_backend.observe.native.keys import region_key
from instrumented_backend.observe.ops.estimate import OpSums
from instrumented_backend.observe.ops.lines import Line
from instrumented_backend.records import BreakRecord, GraphRecord, SkippedRecord, notes
from instrumented_backend.records.causes import BREAK, GAVE_UP, SKIPPED
from instrumented_backend.records.functions import resumed

MAX_BREAKS = 1_000
MAX_LISTED = 100  # graphs and functions of one break
# What Dynamo refuses before it begins to compile, in no event; most else in its counter of what it
# does not support it has met and got over.
_REFUSED_UNSEEN = "Attempt to trace generator"
_AT_LIMIT = "the table recompiles says which guards failed and what helps"

Site = tuple[str, str, int]  # file, function and line in a compiled function at which it was split


@dataclass
class _Cause:
    record: BreakRecord
    reason: Reason
    sites: set[Site] = field(default_factory=set)


class _Compilation:
    """What a compilation under way has met so far."""

    def __init__(self, compile_id: str) -> None:
        self.compile_id = compile_id
        self.met: dict[int, tuple[_Cause, BreakReason]] = {}  # by the cause's identity, in order


class BreakLog:
    """Takes in each break as it is met and each compilation as it ends."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._causes: dict[tuple[str, str | None, int | None], _Cause] = {}
        self._compiling: dict[str, _Compilation] = {}
        self.left_out = 0  # meetings with causes beyond the first MAX_BREAKS

    def met(self, compile_id: str | None, found: BreakReason) -> bool:
        """A compilation ran into a break; restarts of one compilation are one meeting.

        Whether it is the first one with this cause.
        """
        frame = found.frame
        cause = self._cause(
            found.reason, frame.file if frame else None, frame.line if frame else None
        )
        if cause is None:
            return False
        record = cause.record
        is_new = not record.count
        if is_new:
            record.hint, record.whose = self._hint_of_operator(record) or found.hint, found.whose
            if frame is not None:
                record.function, record.source = frame.function or None, frame.source
            if found.called_from is not None:
                record.called_file = found.called_from.file
                record.called_line = found.called_from.line
        if compile_id is None:
            record.count += 1
            return is_new
        compilation = self._compiling.get(compile_id)
        if compilation is None:
            if len(self._compiling) >= MAX_BREAKS:
                self._compiling.clear()  # of compilations whose end nobody told
            compilation = self._compiling[compile_id] = _Compilation(compile_id)
        if id(cause) not in compilation.met:
            record.count += 1
        compilation.met[id(cause)] = cause, found
        return is_new

    def _hint_of_operator(self, record: BreakRecord) -> str | None:
        """Dynamo tries what an operator refused again, and breaks on the same line without it."""
        for (reason, file, line), cause in self._causes.items():
            is_same = (file, line) == (record.file, record.line) and cause.record is not record
            if is_same and reason.startswith(IN_OPERATOR):
                return cause.record.hint
        return None

    def last_met(self, compile_id: str) -> BreakReason | None:
        """The break that a compilation under way ran into last."""
        compilation = self._compiling.get(compile_id)
        met = compilation.met.values() if compilation else ()
        return next((found for _, found in reversed(met)), None) if met else None

    def compiled(
        self, compile_id: str, function: str | None, file: str | None, graphs: Iterable[int | None]
    ) -> None:
        """A function was compiled, up to the break if it met one."""
        compilation = self._compiling.pop(compile_id, None)
        if compilation is None:
            return
        known = [graph for graph in graphs if graph is not None]
        for cause, found in compilation.met.values():
            before = cause.record.graphs_before
            before += known[: MAX_LISTED - len(before)]
            site = _site(found, function, file)
            if site is not None and len(cause.sites) < MAX_LISTED:
                cause.sites.add(site)

    def ended(self, compile_id: str) -> None:
        """A compilation ended without a graph, and torch does not say why."""
        self._compiling.pop(compile_id, None)

    def gave_up(
        self,
        compile_id: str,
        message: str,
        function: str | None,
        file: str | None,
        line: int | None,
        users_place: tuple[str | None, int | None] = (None, None),
        raises: bool = False,
    ) -> None:
        """A function was left to eager execution; ``message`` is Dynamo's.

        Where it ``raises`` (fullgraph=True), the program got an exception instead.
        """
        compilation = self._compiling.pop(compile_id, None)
        skipped = SkippedRecord(function and resumed(function)[0], file, line)
        if compilation is not None and compilation.met:
            cause, found = list(compilation.met.values())[-1]
            if raises:
                return
            why = read_last_reason(message)
            if why != found.reason:
                skipped.reason = why.text
            cause.record.kind = SKIPPED
        else:
            reason = read_reason(message)
            place = users_place if users_place[0] else (file, line)
            new = self._cause(reason, *place)
            if new is None:
                return
            cause = new
            cause.record.count += 1
            if cause.record.kind == BREAK:
                cause.record.kind = GAVE_UP
                cause.record.function = skipped.function
                cause.record.hint = first_hint(message)
                if reason.is_recompile_limit:
                    cause.record.code = notes.RECOMPILE_LIMIT
                    cause.record.hint = _AT_LIMIT
        listed = cause.record.skipped
        if not raises and len(listed) < MAX_LISTED and skipped not in listed:
            listed.append(skipped)

    def _cause(self, reason: Reason, file: str | None, line: int | None) -> _Cause | None:
        key = reason.text, file, line
        cause = self._causes.get(key)
        if cause is None:
            if len(self._causes) >= MAX_BREAKS:
                self.left_out += 1
                return None
            record = BreakRecord(BREAK, reason.text, file, line, None, headline=reason.headline)
            cause = self._causes[key] = _Cause(record, reason)
        return cause

    def records(
        self,
        graphs: Iterable[GraphRecord],
        seen: Mapping[tuple[int, Line], OpSums] | None,
    ) -> list[BreakRecord]:
        """Copies of all, the costliest first.

        ``seen`` has the eager ops by region key and line, where any were watched.
        """
        causes = list(self._causes.values())
        graphs = list(graphs)
        records = []
        disabled: dict[int, str] = {}
        for cause in causes:
            record = copy.deepcopy(cause.record)
            record.graphs_after = _after(cause.sites, graphs)
            records.append(record)
            if (name := cause.reason.disabled_function) is not None:
                disabled[id(record)] = name
        if seen is not None:
            _add_costs(records, graphs, seen, disabled)
        return sorted(records, key=_costliest_first)

    def unplaced(self, unsupported: Mapping[str, int]) -> list[BreakRecord]:
        """Functions that Dynamo refuses from the start: generators. Only its counter has them."""
        known = {cause.record.reason for cause in self._causes.values()}
        skipped = [one for cause in self._causes.values() for one in cause.record.skipped]
        known |= {function.reason or "" for function in skipped}
        records = []
        for message, count in unsupported.items():
            reason = read_reason(message)
            if reason.headline == _REFUSED_UNSEEN and reason.text not in known:
                record = BreakRecord(GAVE_UP, reason.text, None, None, None, count)
                record.headline, record.hint = reason.headline, first_hint(message)
                records.append(record)
        return records


def _costliest_first(record: BreakRecord) -> tuple[float, bool, int]:
    return -(record.eager_time_us or 0.0), record.kind == BREAK, -record.count


def _site(found: BreakReason, function: str | None, file: str | None) -> Site | None:
    """Where the compiled function itself was when something in it, or that it called, broke."""
    if function is None or file is None:
        return None
    name = resumed(function)[0]
    for frame in reversed(found.stack):
        if frame.file == file and frame.function == name:
            return file, name, frame.line
    return None


def _after(sites: set[Site], graphs: list[GraphRecord]) -> list[int]:
    """The graphs of the functions' rests."""
    found = []
    for graph in graphs:
        name, line = resumed(graph.function or "")
        if line is not None and (graph.file, name, line) in sites and graph.graph is not None:
            found.append(graph.graph)
    return found[:MAX_LISTED]


# --- Cost ---------------------------------------------------------------------------------------


def _add_costs(
    records: list[BreakRecord],
    graphs: list[GraphRecord],
    seen: Mapping[tuple[int, Line], OpSums],
    disabled: Mapping[int, str],
) -> None:
    """Book eager ops on what they ran for; each op once.

    Ops in a skipped function ran because it was skipped. Ops after the graph that a break ended,
    up to the next region, ran because of the break, if the rest of the function has a graph that
    was called: else what the program does afterwards would be counted, and only the break's own
    line and the function that it refused to enter are. So they are where no graph came before.
    ``disabled`` has that function by the record's identity.
    """
    skipped = {
        (function.file, function.line): record
        for record in records
        for function in function_list(record)
    }
    called = {graph.graph for graph in graphs if graph.calls}
    before = {
        region_key(number, False): record for record in records for number in record.graphs_before
    }
    first = [record for record in records if not record.graphs_before]
    at_line: dict[tuple[str | None, int | None], BreakRecord]
    at_line = {(record.file, record.line): record for record in first if record.file}
    entered = {name: record for record in first if (name := disabled.get(id(record))) is not None}
    costs = {id(record): OpSums() for record in records}
    for (key, line), sums in seen.items():
        record = skipped.get((line.file, line.first_line))
        if record is None:
            record = before.get(key)
            if record is not None and not (
                (line.file, line.line) == (record.file, record.line)
                or (line.function is not None and line.function == disabled.get(id(record)))
                or called.intersection(record.graphs_after)
            ):
                record = None
        if record is None:
            record = at_line.get((line.file, line.line)) or entered.get(line.function or "")
        if record is None:
            continue
        costs[id(record)].add(sums.ops, sums.ns)
    for record in records:
        cost = costs[id(record)]
        record.eager_ops, record.eager_time_us = round(cost.ops), cost.ns / 1e3


def function_list(record: BreakRecord) -> list[SkippedRecord]:
    return [function for function in record.skipped if function.file and function.line]
