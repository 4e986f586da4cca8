"""What the op meter saw, as it is read from its native part."""

import ctypes
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from instrumented_backend.observe.native import build as native
from instrumented_backend.observe.ops.lines import Line


@dataclass(frozen=True)
class Mark:
    """Where a gap begins: at the end of a direction's call, or at an event that came after it."""

    region: int  # by `region_key`; 0: before any call
    event: str | None  # the name of an event of PyTorch's own
    in_data: bool  # a DataLoader is at work
    begins: bool = False  # the event had begun, and not ended


@dataclass(frozen=True)
class Cell:
    """Ops of one name in one kind of gap: the first of each gap, or the second, ..."""

    name: str
    mark: int
    slot: int  # among the mark's cells
    count: int
    time_ns: int
    lines: dict[int, tuple[float, float]]
    """A line's number → ops and nanoseconds on it, by samples; empty where none are known."""

    def plus(self, other: "Cell") -> "Cell":
        """The same ops, of another kind of gap as well."""
        lines = dict(self.lines)
        for line, (ops, ns) in other.lines.items():
            before = lines.get(line, (0.0, 0.0))
            lines[line] = before[0] + ops, before[1] + ns
        count, time_ns = self.count + other.count, self.time_ns + other.time_ns
        return replace(self, count=count, time_ns=time_ns, lines=lines)


@dataclass
class Part:
    """What one set of windows saw of one kind of gap: in whole gaps, or in slices of them."""

    seen: native.Seen
    cells: list[Cell]


@dataclass
class Kind:
    """Gaps from one mark to another, of one octave of lengths: all of them, and those seen.

    Gaps of which other marks came before are another one.
    """

    edge: int  # the same for all lengths of gaps in one position and to one mark
    mark: int
    to: int  # a `region_key`; an event has the negative of its number
    octave: int
    n: tuple[int, int]  # on the main thread, on others
    ns: tuple[int, int]
    whole: tuple[Part, Part]  # in certain windows, in random ones
    slices: tuple[Part, Part]
    first: Part  # the very first gap, if a certain window saw it

    @property
    def wholes(self) -> tuple[Part, ...]:
        """What was seen of whole gaps."""
        return (self.first, *self.whole)


@dataclass
class Observed:
    """What the op meter saw. Of threads without marks, only ``loose`` is known."""

    marks: list[Mark]
    kinds: list[Kind]
    loose: tuple[Part, Part]
    regions: dict[int, native.RegionRow]  # by `region_key`
    times: native.TimeRow
    lines: list[Line]
    whole: bool  # one window, from the start on, that never closed
    elapsed_ns: int  # since the start
    events: dict[int, str | None] = field(default_factory=dict)  # by the number in `Kind.to`

    @property
    def lost(self) -> int:
        """Ops that were not booked, because there were too many names."""
        return int(self.times.lost)


def read(lib: Any, lines: list[Line], whole: bool, elapsed_ns: int) -> Observed:
    """All of it, at this moment."""
    lib.op_meter_settle()
    times = native.TimeRow()
    lib.op_meter_times(ctypes.byref(times))
    begun = _rows(lib.op_meter_marks, native.MarkRow)
    events = {row.event: _event(lib, row.event) for row in begun if row.event}
    marks = [
        Mark(row.graph, events.get(row.event), bool(row.in_data), bool(row.event % 2))
        for row in begun
    ]
    rows = _rows(lib.op_meter_kinds, native.KindRow)
    cells = _cells(lib)

    def part(kind: int, number: int, seen: native.Seen) -> Part:
        return Part(seen, cells.get((kind, number), []))

    kinds = [
        Kind(
            row.edge,
            row.mark,
            row.to,
            row.octave,
            tuple(row.population.n),
            tuple(row.population.ns),
            (part(row.kind, 0, row.whole[0]), part(row.kind, 1, row.whole[1])),
            (part(row.kind, 2, row.slices[0]), part(row.kind, 3, row.slices[1])),
            part(row.kind, 4, row.first),
        )
        for row in rows
    ]
    regions = dict(enumerate(_rows(lib.op_meter_regions, native.RegionRow)))
    loose = part(-1, 2, native.Seen()), part(-1, 3, native.Seen())
    return Observed(marks, kinds, loose, regions, times, lines, whole, elapsed_ns, events)


def _event(lib: Any, number: int) -> str | None:
    name: bytes = lib.op_meter_event(number // 2)
    return name.decode(errors="replace") if number else None


def _cells(lib: Any) -> dict[tuple[int, int], list[Cell]]:
    """By kind of gap and part of it."""
    lines = _SampledLines(_rows(lib.op_meter_samples, native.SampleRow))
    found: dict[tuple[int, int], list[Cell]] = {}
    for row in _rows(lib.op_meter_cells, native.CellRow):
        name = row.name.decode(errors="replace")
        cell = Cell(name, row.mark, row.slot, row.count, row.ns, lines.of(row))
        found.setdefault((row.kind, row.part), []).append(cell)
    return found


class _SampledLines:
    """On which lines the ops of a cell were.

    By the samples taken in its kind of gap; where there are none, by those of gaps from and to the
    same marks in the same position; or of any that begin at the mark.
    """

    def __init__(self, rows: Iterable[native.SampleRow]) -> None:
        self._weights: dict[tuple[object, ...], dict[int, tuple[float, float]]] = {}
        for row in rows:
            for key in self._keys(row):
                known = self._weights.setdefault(key, {})
                weight, ns = known.get(row.line, (0.0, 0.0))
                known[row.line] = weight + row.weight, ns + row.weighted_ns

    @staticmethod
    def _keys(row: native.SampleRow | native.CellRow) -> list[tuple[object, ...]]:
        of_part = ("part", row.kind, row.part, row.slot)
        if row.kind < 0:  # of threads without marks
            return [of_part]
        return [
            of_part,
            ("kind", row.kind, row.slot),
            ("edge", row.edge, row.slot),
            ("mark", row.mark, row.slot),
        ]

    def of(self, row: native.CellRow) -> dict[int, tuple[float, float]]:
        weights = next((self._weights[key] for key in self._keys(row) if key in self._weights), {})
        all_ops, all_ns = (sum(sums[i] for sums in weights.values()) for i in range(2))
        return {
            line: (
                row.count * (weight / all_ops),
                row.ns * (ns / all_ns if all_ns else weight / all_ops),
            )
            for line, (weight, ns) in weights.items()
            if all_ops
        }


def _rows(function: Callable[[Any, int], int], kind: Any) -> list[Any]:
    size = function(None, 0)
    array = (kind * size)()
    return list(array[: min(function(array, size), size)])
