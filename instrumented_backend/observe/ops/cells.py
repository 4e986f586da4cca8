"""Ops in gaps and their lines, as the op meter's native part hands them out.

A program with long stretches of eager ops has tens of thousands of such rows. They stay rows: all
of them as objects would take fifty megabytes, and a process gives little of that back.
"""

import ctypes
import functools
import itertools
from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from instrumented_backend.observe.native.structs import CellRow, SampleRow
from instrumented_backend.observe.ops.raking import raked


class OnLine(NamedTuple):
    """Of a cell's ops those on one line, by samples."""

    ops: float
    ns: float
    ops_variance: float = 0.0

    def plus(self, other: "OnLine") -> "OnLine":
        return OnLine(*map(sum, zip(self, other, strict=True)))

    def times(self, factor: float) -> "OnLine":
        return OnLine(self.ops * factor, self.ns * factor, self.ops_variance * factor**2)


LineSums = dict[int, OnLine]  # by the line's number


@dataclass(slots=True)
class Cell:
    """Ops of one name in one kind of gap: the first of each gap, or the second, ...

    Those of another op before them are another one.
    """

    name: str
    mark: int
    slot: int  # among the mark's cells
    count: float
    time_ns: float
    lines: LineSums
    """Empty where none are known."""
    turn: int = 0  # which of its name in the gap

    def times(self, factor: float) -> "Cell":
        lines = {line: sums.times(factor) for line, sums in self.lines.items()}
        count, time_ns = self.count * factor, self.time_ns * factor
        return replace(self, count=count, time_ns=time_ns, lines=lines)

    def plus(self, other: "Cell") -> "Cell":
        """The same ops, of another kind of gap as well."""
        lines = dict(self.lines)
        for line, sums in other.lines.items():
            lines[line] = lines[line].plus(sums) if line in lines else sums
        count, time_ns = self.count + other.count, self.time_ns + other.time_ns
        return replace(self, count=count, time_ns=time_ns, lines=lines)


def cells_of_parts(
    rows: "ctypes.Array[CellRow]", samples: "ctypes.Array[SampleRow]"
) -> dict[tuple[int, int], Collection[Cell]]:
    """By kind of gap and part of it."""
    columns = _Columns.of(rows, CellRow)
    names = {
        address: ctypes.string_at(address).decode(errors="replace")
        for address in columns.distinct("name")
    }
    lines = SampledLines(samples, columns)
    found: dict[tuple[int, int], Collection[Cell]] = {}
    start = 0
    for key, group in itertools.groupby(columns.zipped("kind", "part")):
        stop = start + sum(1 for _ in group)
        found[key[0], key[1]] = _Rows(columns.between(start, stop), names, lines)
        start = stop
    return found


class _Rows(Collection[Cell]):
    """Cells of one part, made anew whenever somebody goes through them."""

    def __init__(self, columns: "_Columns", names: dict[int, str], lines: "SampledLines") -> None:
        self._columns = columns
        self._names = names
        self._lines = lines

    def __len__(self) -> int:
        return len(self._columns)

    def __contains__(self, cell: object) -> bool:
        return any(cell == each for each in self)

    def __iter__(self) -> Iterator[Cell]:
        words = self._columns.zipped("kind", "part", "mark", "slot", "name", "ordinal")
        sums = zip(self._columns.doubles("count"), self._columns.doubles("ns"), strict=True)
        for (kind, part, mark, slot, name, turn), (count, ns) in zip(words, sums, strict=True):
            lines = self._lines.of(kind, part, mark, slot, count, ns)
            yield Cell(self._names[name], mark, slot, count, ns, lines, turn)


class Together(Collection[Cell]):
    """Cells of several parts, added up whenever somebody goes through them."""

    def __init__(self, parts: Sequence[tuple[Collection[Cell], float]]) -> None:
        """With each part, how often its ops count."""
        self._parts = parts

    def __len__(self) -> int:
        return len({(cell.mark, cell.slot) for part, _ in self._parts for cell in part})

    def __contains__(self, cell: object) -> bool:
        return any(cell == each for each in self)

    def __iter__(self) -> Iterator[Cell]:
        cells: dict[int, Cell] = {}
        for part, factor in self._parts:
            for each in part:
                cell = each if factor == 1 else each.times(factor)
                place = _place(cell.mark, cell.slot)
                known = cells.get(place)
                cells[place] = cell if known is None else known.plus(cell)
        return iter(cells.values())


# --- Lines --------------------------------------------------------------------------------------

OCTAVES = 48  # kinds of an edge; `_op_state.h` says the same
_PARTS = 8  # of a kind; there are five
_BITS = 48


class SampledLines:
    """On which lines the ops of a cell were.

    By the samples taken in its kind of gap; where there are none, by those of gaps from and to the
    same marks in the same position; or of any that begin at the mark. What it takes to sample an op
    makes its gap longer, and so of another kind, now and then: of all lengths of such gaps
    together, the lines have as many ops as the samples there say.
    """

    def __init__(self, rows: "ctypes.Array[SampleRow]", cells: "_Columns") -> None:
        samples = _Columns.of(rows, SampleRow)
        # Sorted by mark and slot, then by kind and part: what is asked for is always one stretch.
        keys = [
            _place(mark, slot) << _BITS | _part(kind, part)
            for mark, slot, kind, part in samples.zipped("mark", "slot", "kind", "part")
        ]
        order = sorted(range(len(keys)), key=keys.__getitem__)
        line, weight = samples.words("line"), samples.doubles("weight")
        ns, weight2 = samples.doubles("weighted_ns"), samples.doubles("weight2")
        self._lines = array("q", (line[number] for number in order))
        self._weights = array("d", (weight[number] for number in order))
        self._ns = array("d", (ns[number] for number in order))
        self._weights2 = array("d", (weight2[number] for number in order))
        self._parts = array("q", (keys[number] & (1 << _BITS) - 1 for number in order))
        self._ends: dict[int, int] = {}  # of a mark's slot; where the next begins
        self._begins: dict[int, int] = {}
        for index, number in enumerate(order):
            place = keys[number] >> _BITS
            self._begins.setdefault(place, index)
            self._ends[place] = index + 1
        self._cells = cells
        self._shares: dict[_Group, dict[int, dict[int, float]]] = {}  # by part; by line

    def of(self, kind: int, part: int, mark: int, slot: int, count: float, ns: float) -> LineSums:
        """The ops and nanoseconds of a cell, by line."""
        place = _place(mark, slot)
        found = self._sums(kind, part, place)
        if len(found) < 2:  # nearly always
            return {line: OnLine(count, ns) for line in found}
        everywhere = _Samples.all_of(found.values())
        shares = None if kind < 0 else self._of_all_lengths(kind, part, place)
        lines: LineSums = {}
        for line, sums in found.items():
            own = sums.weight / everywhere.weight
            share = own if shares is None else shares[line]
            lines[line] = OnLine(
                count * share,
                ns * (sums.ns / everywhere.ns if everywhere.ns else own) * share / own,
                sums.share_variance(everywhere) * count**2,
            )
        return lines

    def _of_all_lengths(self, kind: int, part: int, place: int) -> dict[int, float]:
        """Each line's share of the cell's ops in one part, by the samples of all of the edge."""
        group = place, kind // OCTAVES, part % 2
        shares = self._shares.get(group)
        if shares is None:
            shares = self._shares[group] = self._raked(group)
        return shares[_part(kind, part)]

    def _raked(self, group: "_Group") -> dict[int, dict[int, float]]:
        place = group[0]
        totals: defaultdict[int, float] = defaultdict(float)
        table: dict[int, dict[int, float]] = {}
        for (kind, part), count in self._counts[group].items():
            sums = self._sums(kind, part, place)
            weight = _Samples.all_of(sums.values()).weight
            table[_part(kind, part)] = {
                line: count * each.weight / weight for line, each in sums.items()
            }
            for line, each in self._summed(self._own(kind, part, place)).items():
                totals[line] += each.weight
        shares: dict[int, dict[int, float]] = {}
        for row, cells in raked(table, totals).items():
            all_ops = sum(cells.values())
            shares[row] = {line: ops / all_ops for line, ops in cells.items()}
        return shares

    @functools.cached_property
    def _counts(self) -> dict["_Group", dict[tuple[int, int], float]]:
        """Of the cells with samples of several lines: their ops, by kind and part."""
        several = {
            place
            for place, begin in self._begins.items()
            if len(set(self._lines[begin : self._ends[place]])) > 1
        }
        counts: defaultdict[_Group, dict[tuple[int, int], float]] = defaultdict(dict)
        words = self._cells.zipped("kind", "part", "mark", "slot")
        for (kind, part, mark, slot), count in zip(
            words, self._cells.doubles("count"), strict=True
        ):
            place = _place(mark, slot)
            if place in several:
                counts[place, kind // OCTAVES, part % 2][kind, part] = count
        return counts

    def _sums(self, kind: int, part: int, place: int) -> dict[int, "_Samples"]:
        """Of the samples that tell of a cell, by line; none where nothing does."""
        begin = self._begins.get(place)
        if begin is None:
            return {}
        end = self._ends[place]
        found = self._own(kind, part, place)
        if not found and kind >= 0:
            edge = kind - kind % OCTAVES
            found = (
                self._between(_part(kind, 0), _part(kind + 1, 0), begin, end)
                or self._between(_part(edge, 0), _part(edge + OCTAVES, 0), begin, end)
                or range(begin, end)
            )
        # Threads without marks have no other gaps.
        return self._summed(found)

    def _own(self, kind: int, part: int, place: int) -> range:
        own = _part(kind, part)
        return self._between(own, own + 1, self._begins[place], self._ends[place])

    def _between(self, low: int, high: int, begin: int, end: int) -> range:
        first = bisect_left(self._parts, low, begin, end)
        return range(first, bisect_left(self._parts, high, first, end))

    def _summed(self, stretch: range) -> dict[int, "_Samples"]:
        sums: dict[int, _Samples] = {}
        for index in stretch:
            taken = _Samples(self._weights[index], self._ns[index], self._weights2[index])
            before = sums.get(self._lines[index])
            sums[self._lines[index]] = taken if before is None else before.plus(taken)
        return sums


# A cell's place, the edge, and the set of windows: odd parts are of random ones.
_Group = tuple[int, int, int]


class _Samples(NamedTuple):
    weight: float = 0.0
    ns: float = 0.0
    weight2: float = 0.0

    @staticmethod
    def all_of(several: Iterable["_Samples"]) -> "_Samples":
        return functools.reduce(_Samples.plus, several)

    def plus(self, other: "_Samples") -> "_Samples":
        return _Samples(*map(sum, zip(self, other, strict=True)))

    def share_variance(self, everywhere: "_Samples") -> float:
        """Of its share of all: that of a ratio of sums of weights, as each sample is in or not."""
        share = self.weight / everywhere.weight
        elsewhere2 = everywhere.weight2 - self.weight2
        spread2 = (1 - share) ** 2 * self.weight2 + share**2 * elsewhere2
        return spread2 / everywhere.weight**2


def _place(mark: int, slot: int) -> int:
    """One number takes less than a tuple."""
    return mark << 32 | slot


def _part(kind: int, part: int) -> int:
    """A kind is -1 or more."""
    return (kind + 1) * _PARTS + part


# --- Rows ---------------------------------------------------------------------------------------


class _Columns:
    """An array of structures of words, without an object for each."""

    def __init__(self, words: "memoryview[int]", at: dict[str, int]) -> None:
        """``at``: where each field's word is."""
        self._words = words
        self._at = at

    @classmethod
    def of(cls, rows: Any, struct: type[ctypes.Structure]) -> "_Columns":
        at = {field[0]: number for number, field in enumerate(struct._fields_)}
        # A view of nothing cannot be cast.
        return cls(memoryview(rows).cast("B") if len(rows) else memoryview(b""), at)

    def __len__(self) -> int:
        return len(self._words) // (_WORD * len(self._at))

    def between(self, start: int, stop: int) -> "_Columns":
        size = _WORD * len(self._at)
        return _Columns(self._words[start * size : stop * size], self._at)

    def zipped(self, *names: str) -> Iterator[tuple[int, ...]]:
        return zip(*map(self.words, names), strict=True)

    def distinct(self, name: str) -> set[int]:
        return {value for (value,) in self.zipped(name)}

    def words(self, name: str) -> "memoryview[int]":
        return self._words.cast("q")[self._at[name] :: len(self._at)]

    def doubles(self, name: str) -> "memoryview[float]":
        return self._words.cast("d")[self._at[name] :: len(self._at)]


_WORD = ctypes.sizeof(ctypes.c_int64)
