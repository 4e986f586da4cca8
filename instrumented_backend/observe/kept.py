"""What one snapshot of the report leaves to the next, so that each costs only what is new in it."""

import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from instrumented_backend.observe.code.generated import GeneratedCode
from instrumented_backend.observe.graphs.graph import ObservedGraph
from instrumented_backend.observe.ops.estimate import Estimate, OpSums
from instrumented_backend.observe.ops.lines import Line
from instrumented_backend.records import (
    EagerOpRecord,
    FileRecord,
    GpuSection,
    GraphRecord,
    KernelRecord,
    LedgerSection,
    LineRecord,
    MissingRecord,
    OpsRecord,
)

MAX_KERNELS = 1_000  # of a snapshot: a report that is complete can have a hundred times as many

Value = TypeVar("Value")


@dataclass
class Sums:
    """What is estimated of the whole run, as of the ledger's ``wall_s``."""

    ops: OpsRecord
    ledger: LedgerSection
    gpu: GpuSection = field(default_factory=GpuSection)


@dataclass
class Listing:
    """Eager ops by name and by line, which take longest to work out: as they were some time ago."""

    eager: list[EagerOpRecord] = field(default_factory=list)
    missing: list[MissingRecord] = field(default_factory=list)
    lines: list[LineRecord] = field(default_factory=list)
    files: list[FileRecord] = field(default_factory=list)
    by_place: Mapping[tuple[int, Line], OpSums] | None = None
    at: float = 0.0  # seconds since 1970

    def take(self, ops: OpsRecord, found: Estimate | None) -> None:
        self.eager, self.missing, self.at = ops.eager, ops.missing, time.time()
        self.by_place = found.by_place if found else None

    def give(self, ops: OpsRecord) -> None:
        ops.eager, ops.missing, ops.listed_at = self.eager, self.missing, self.at


class Kept:
    """Records of graphs to which nothing has happened but calls, and what is made of all of them.

    The records are those of the next snapshot, too: who gets them encodes them and lets go.
    """

    def __init__(self, listed: bool = True) -> None:
        self.listing = Listing()
        self.listed = listed  # does the next snapshot list eager ops anew
        self.estimated = True  # does it estimate anew; if it lists them, it does
        self.sums: Sums | None = None
        self.left_out = 0  # kernels
        self._made = 0  # records so far
        self._pairs: list[tuple[ObservedGraph, GraphRecord]] = []
        self._values: dict[str, tuple[Hashable, object] | None] = {}

    @property
    def generation(self) -> int:
        """Another one where any graph's record is new."""
        return self._made

    def record(
        self, graph: ObservedGraph, make: Callable[[ObservedGraph], GraphRecord]
    ) -> GraphRecord:
        """The graph's, with its calls of now."""
        record = graph.kept
        counted = graph.ops.forward if graph.ops is not None else None
        if record is None or record.forward_ops != counted:
            graph.kept = None
            record = make(graph)
            graph.kept = record
            self._made += 1
        else:
            record.calls = graph.calls.value
            record.backward_calls = graph.backward_calls.value
        return record

    def known(
        self, graphs: Iterable[ObservedGraph], make: Callable[[ObservedGraph], GraphRecord]
    ) -> list[tuple[ObservedGraph, GraphRecord]]:
        """All graphs with their records. The pairs are kept as well: of ten thousand new ones in
        each snapshot, Python's collector would begin to look through all that the program has."""
        pairs = self._pairs
        count = 0
        for count, graph in enumerate(graphs, 1):
            record = self.record(graph, make)
            if count > len(pairs):
                pairs.append((graph, record))
            elif pairs[count - 1][1] is not record:
                pairs[count - 1] = graph, record
        del pairs[count:]
        return pairs

    def value(self, name: str, key: Hashable, make: Callable[[], Value]) -> Value:
        """What ``make`` returned the last time, if the key is the same."""
        known = self._values.get(name)
        if known is None or known[0] != key:
            known = self._values[name] = None  # let go of before the next is made
            known = self._values[name] = key, make()
        return known[1]  # type: ignore[return-value]  # of one name there is one type

    def kernels(self, graphs: Sequence[tuple[ObservedGraph, GraphRecord]]) -> list[KernelRecord]:
        """Records of the first graphs' kernels; made again where more code has been read."""
        shown, self.left_out = self.value(
            "codes", (self._made, len(graphs)), lambda: _first_codes(graphs)
        )
        is_timed = any(code.times is not None for code, _ in shown)
        key = self._made, len(shown), sum(code.parsed for code, _ in shown), is_timed and object()

        def make() -> list[KernelRecord]:
            kernels = []
            for code, number in shown:
                for kernel in code.kernels():
                    kernel.graph = number
                    kernels.append(kernel)
            return kernels

        return self.value("kernels", key, make)


def _first_codes(
    graphs: Sequence[tuple[ObservedGraph, GraphRecord]],
) -> tuple[list[tuple[GeneratedCode, int | None]], int]:
    """Those with the first kernels, each with its graph's number; and how many others there are."""
    shown: list[tuple[GeneratedCode, int | None]] = []
    count = left_out = 0
    for graph, record in graphs:
        for code in list(graph.code):
            if left_out or count + len(code.names) > MAX_KERNELS:
                left_out += len(code.names)
            else:
                count += len(code.names)
                shown.append((code, record.graph))
    return shown, left_out
