"""What the op meter saw, as it is read from its native part."""

import ctypes
import mmap
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from instrumented_backend.observe.native import structs
from instrumented_backend.observe.ops.called import Called, called
from instrumented_backend.observe.ops.cells import Cell, cells_of_parts
from instrumented_backend.observe.ops.gpu_seen import GpuSeen
from instrumented_backend.observe.ops.lines import Line


@dataclass(frozen=True)
class Mark:
    """Where a gap begins: at the end of a direction's call, or at an event that came after it."""

    region: int  # by `region_key`; 0: before any call
    event: str | None  # the name of an event of PyTorch's own
    in_data: bool  # a DataLoader is at work
    begins: bool = False  # the event had begun, and not ended


@dataclass
class Part:
    """What one set of windows saw of one kind of gap: in whole gaps, or in slices of them."""

    seen: structs.Seen
    cells: Collection[Cell]

    @cached_property
    def counts(self) -> defaultdict[str, float]:
        """Of ops, by name."""
        counts: defaultdict[str, float] = defaultdict(float)
        for (name, _), count in self.turns.items():
            counts[name] += count
        return counts

    @cached_property
    def turns(self) -> defaultdict[tuple[str, int], float]:
        """Of ops, by name and which of that name in the gap."""
        turns: defaultdict[tuple[str, int], float] = defaultdict(float)
        for cell in self.cells:
            turns[cell.name, cell.turn] += cell.count
        return turns


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
    cost_ns: int = 0  # of ``ns``, what went into seeing ops: what was seen is without it
    looked: structs.Seen = field(default_factory=structs.Seen)
    """Gaps of which certain windows saw slices: all of each, as these tell."""
    by_chance: structs.Seen = field(default_factory=structs.Seen)
    """In random windows, of all lengths of gaps of the edge but long ones: the windows' sums."""
    stages: dict[tuple[float, float], structs.Seen] = field(default_factory=dict)
    """Of gaps that may be unlike the others, what windows saw while these had gone on for so many
    nanoseconds, from and until. Each gap is as a window."""
    met: structs.Seen = field(default_factory=structs.Seen)
    """Of those looked at, the ones that had ops when they first were."""
    ended: structs.Seen = field(default_factory=structs.Seen)
    """Of these, the ones that a window saw to their end, and of which most ops were
    seen."""

    @property
    def own_ns(self) -> int:
        """Without what went into seeing ops, as all that was seen is."""
        return sum(self.ns) - self.cost_ns

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
    regions: dict[int, structs.RegionRow]  # by `region_key`
    times: structs.TimeRow
    lines: list[Line]
    whole: bool  # one window, from the start on, that never closed
    elapsed_ns: int  # since the start
    events: dict[int, str | None] = field(default_factory=dict)  # by the number in `Kind.to`
    gpu: GpuSeen = field(default_factory=GpuSeen)
    before: Before = field(default_factory=Before)
    called: Called = field(default_factory=Called)

    @property
    def lost(self) -> int:
        """Ops that were not booked, because there were too many names."""
        return int(self.times.lost)


@dataclass(frozen=True)
class Copied:
    """What the native part holds at one moment, as it hands it out."""

    marks: list[Mark]
    events: dict[int, str | None]  # by the number in `Kind.to`
    kinds: "ctypes.Array[structs.KindRow]"
    stages: "ctypes.Array[structs.StageRow]"
    cells: "ctypes.Array[structs.CellRow]"
    samples: "ctypes.Array[structs.SampleRow]"
    functions: "ctypes.Array[structs.FunctionRow]"
    callers: "ctypes.Array[structs.CallerRow]"
    regions: "ctypes.Array[structs.RegionRow]"
    times: structs.TimeRow
    gpu: GpuSeen

    @classmethod
    def of(
        cls, lib: Any, listed: bool = True, longest_gap_s: float = 0.0, with_gaps: bool = True
    ) -> "Copied":
        """Not ``listed``: without cells and samples, but for threads that have nothing else.

        The gaps under way are in it if they have lasted for ``longest_gap_s``. Not ``with_gaps``:
        there are none, and nothing can be estimated.
        """
        lib.op_meter_settle(int(1e9 * longest_gap_s))
        times = structs.TimeRow()
        lib.op_meter_times(ctypes.byref(times))
        # The program goes on meanwhile, so marks come last: all the others tell of them.
        kinds = _rows(lib.op_meter_kinds if with_gaps else _none, structs.KindRow)
        stages = _rows(lib.op_meter_stages if with_gaps else _none, structs.StageRow)
        cells = _rows(lib.op_meter_cells if listed else lib.op_meter_loose_cells, structs.CellRow)
        samples = _rows(lib.op_meter_samples if listed else _none, structs.SampleRow)
        functions = _rows(lib.op_meter_functions, structs.FunctionRow)
        callers = _rows(lib.op_meter_callers, structs.CallerRow)
        gpu = GpuSeen.of(lib, _rows)
        begun = _rows(lib.op_meter_marks, structs.MarkRow)
        events = {row.event: _event(lib, row.event) for row in begun if row.event}
        return cls(
            marks=[
                Mark(row.graph, events.get(row.event), bool(row.in_data), bool(row.event % 2))
                for row in begun
            ],
            events=events,
            kinds=kinds,
            stages=stages,
            cells=cells,
            samples=samples,
            functions=functions,
            callers=callers,
            regions=_rows(lib.op_meter_regions, structs.RegionRow),
            times=times,
            gpu=gpu,
        )

    def observed(
        self, lines: list[Line], whole: bool, elapsed_ns: int, before: Before | None = None
    ) -> Observed:
        """``lines`` by their numbers."""
        cells = cells_of_parts(self.cells, self.samples)
        return _observed(self, cells, lines, whole, elapsed_ns, before or Before())


def _observed(
    copied: Copied,
    cells: Mapping[tuple[int, int], Collection[Cell]],
    lines: list[Line],
    whole: bool,
    elapsed_ns: int,
    before: Before,
) -> Observed:
    nothing = Part(structs.Seen(), [])
    stages: dict[int, dict[tuple[float, float], structs.Seen]] = {}
    for stage in copied.stages:
        stages.setdefault(stage.kind, {})[stage.from_ns, stage.until_ns] = stage.seen

    def part(kind: int, number: int, seen: structs.Seen) -> Part:
        found = cells.get((kind, number))
        return Part(seen, found or []) if found or seen.n else nothing

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
            row.population.cost_ns,
            row.looked,
            row.by_chance,
            stages.get(row.kind, {}),
            row.met,
            row.ended,
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
        called(copied.functions, copied.callers),
    )


def _event(lib: Any, number: int) -> str | None:
    name: bytes = lib.op_meter_event(number // 2)
    return name.decode(errors="replace") if number else None


def _rows(function: Callable[[Any, int], int], kind: Any) -> Any:
    """An array of that structure."""
    size = function(None, 0)
    while size:
        room = size + size // 8 + 16  # there may be more when it is filled
        array = (kind * room).from_buffer(_pages(ctypes.sizeof(kind) * room))
        size = function(array, room)
        if size <= room:
            return (kind * size).from_buffer(array)
    return (kind * 0)()


def _none(_rows: Any, _size: int) -> int:
    return 0


def _pages(size: int) -> mmap.mmap:
    """Memory that the system gets back as soon as it is let go of: malloc would keep megabytes."""
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
