"""What the op meter saw, as it is read from its native part."""

import ctypes
import itertools
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from instrumented_backend.observe.native import build as native
from instrumented_backend.observe.ops.gpu_seen import GpuSeen
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

    @cached_property
    def counts(self) -> Counter[str]:
        """Of ops, by name."""
        counts: Counter[str] = Counter()
        for cell in self.cells:
            counts[cell.name] += cell.count
        return counts


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


@dataclass(frozen=True)
class Before:
    """The main thread's time from the program's beginning to the first window, if that is late."""

    unseen_ns: int = 0  # neither of the others; in no gap
    compile_ns: int = 0
    waited_ns: int = 0  # for the native part


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
    gpu: GpuSeen = field(default_factory=GpuSeen)
    before: Before = field(default_factory=Before)

    @property
    def lost(self) -> int:
        """Ops that were not booked, because there were too many names."""
        return int(self.times.lost)


@dataclass(frozen=True)
class Copied:
    """What the native part holds at one moment, as it hands it out."""

    marks: list[Mark]
    events: dict[int, str | None]  # by the number in `Kind.to`
    kinds: "ctypes.Array[native.KindRow]"
    cells: list[native.CellRow]
    samples: list[native.SampleRow]
    regions: "ctypes.Array[native.RegionRow]"
    times: native.TimeRow
    gpu: GpuSeen

    @classmethod
    def of(cls, lib: Any, listed: bool = True, longest_gap_s: float = 0.0) -> "Copied":
        """Not ``listed``: without cells and samples, but for threads that have nothing else.

        The gaps under way are in it if they have lasted for ``longest_gap_s``.
        """
        lib.op_meter_settle(int(1e9 * longest_gap_s))
        times = native.TimeRow()
        lib.op_meter_times(ctypes.byref(times))
        cells = _rows(lib.op_meter_cells, native.CellRow)
        begun = _rows(lib.op_meter_marks, native.MarkRow)
        events = {row.event: _event(lib, row.event) for row in begun if row.event}
        return cls(
            marks=[
                Mark(row.graph, events.get(row.event), bool(row.in_data), bool(row.event % 2))
                for row in begun
            ],
            events=events,
            kinds=_rows(lib.op_meter_kinds, native.KindRow),
            cells=list(cells) if listed else _of_no_kind(cells),
            samples=list(_rows(lib.op_meter_samples, native.SampleRow)) if listed else [],
            regions=_rows(lib.op_meter_regions, native.RegionRow),
            times=times,
            gpu=GpuSeen.of(lib, _rows),
        )

    def observed(
        self, lines: list[Line], whole: bool, elapsed_ns: int, before: Before | None = None
    ) -> Observed:
        """``lines`` by their numbers."""
        cells = _cells(self.cells, _SampledLines(self.samples))
        return _observed(self, cells, lines, whole, elapsed_ns, before or Before())


def _of_no_kind(cells: "ctypes.Array[native.CellRow]") -> list[native.CellRow]:
    """Those of threads without marks, which come last."""
    if not len(cells):
        return []
    words = memoryview(cells).cast("B").cast("q")
    kinds = words[:: ctypes.sizeof(native.CellRow) // words.itemsize].tolist()
    count = sum(1 for _ in itertools.takewhile(lambda kind: kind < 0, reversed(kinds)))
    return list(cells[len(kinds) - count :])


def _observed(
    copied: Copied,
    cells: dict[tuple[int, int], list[Cell]],
    lines: list[Line],
    whole: bool,
    elapsed_ns: int,
    before: Before,
) -> Observed:
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
        for row in copied.kinds
    ]
    regions = dict(enumerate(copied.regions))
    loose = part(-1, 2, copied.times.loose[0]), part(-1, 3, copied.times.loose[1])
    return Observed(
        copied.marks,
        kinds,
        loose,
        regions,
        copied.times,
        lines,
        whole,
        elapsed_ns,
        copied.events,
        copied.gpu,
        before,
    )


def _event(lib: Any, number: int) -> str | None:
    name: bytes = lib.op_meter_event(number // 2)
    return name.decode(errors="replace") if number else None


def _cells(
    rows: Iterable[native.CellRow], lines: "_SampledLines"
) -> dict[tuple[int, int], list[Cell]]:
    """By kind of gap and part of it."""
    found: dict[tuple[int, int], list[Cell]] = {}
    for row in rows:
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
        weights = self._weights.get(("part", row.kind, row.part, row.slot))
        if weights is None:  # mostly it is there
            keys = self._keys(row)
            weights = next((self._weights[key] for key in keys if key in self._weights), {})
        all_ops, all_ns = (sum(sums[i] for sums in weights.values()) for i in range(2))
        return {
            line: (
                row.count * (weight / all_ops),
                row.ns * (ns / all_ns if all_ns else weight / all_ops),
            )
            for line, (weight, ns) in weights.items()
            if all_ops
        }


def _rows(function: Callable[[Any, int], int], kind: Any) -> Any:
    """An array of that structure."""
    size = function(None, 0)
    array = (kind * size)()
    filled = min(function(array, size), size)
    return array if filled == size else (kind * filled).from_buffer(array)
