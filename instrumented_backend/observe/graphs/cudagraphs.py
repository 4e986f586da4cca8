"""CUDA graphs of ``mode="reduce-overhead"``: recorded, replayed, rerecorded, skipped."""

import logging
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from instrumented_backend.observe.failures import Failures
from instrumented_backend.observe.graphs.calls import CallCounter
from instrumented_backend.observe.messages.skips import skip_reason
from instrumented_backend.observe.observer import Observer
from instrumented_backend.records import CudaGraphRecord, CudaGraphsSection, Note, notes
from instrumented_backend.torch_compat import cudagraphs

MAX_REASONS = 100

GraphSide = tuple[str, str]  # compile id, direction

_SKIPPED = re.compile(r"(skipping|disabling) cudagraph")

_NEW_SIZES = Note(notes.NEW_SIZES, "new sizes")
_OTHER_GRAPH = Note(notes.OTHER_GRAPH_BEFORE, "another graph ran before it")
_WHY_AGAIN = {
    "StaticInputIdxMismatch": Note(
        notes.INPUT_MOVED, "a parameter or static input has moved in memory"
    ),
    "CudagraphManagedIdxMismatch": Note(
        notes.INPUT_MOVED, "an input from another CUDA graph has moved in memory"
    ),
    "ExpectedDeadIndicesBeforeGraphMismatch": Note(
        notes.OUTPUT_ALIVE, "an output of an earlier graph is still alive"
    ),
    "ExpectedDeadIndicesAfterGraphMismatch": Note(
        notes.OUTPUT_DEAD, "an output that was alive before is dead"
    ),
}


@dataclass
class _Recorded:
    """The recordings of one graph's direction."""

    functions: set[int] = field(default_factory=set)  # one for each set of sizes
    count: int = 0
    again: Counter[Note] = field(default_factory=Counter)  # why → how often
    replays: CallCounter = field(default_factory=CallCounter)


class CudaGraphs(logging.Handler, Observer):
    """Counts what the trees of CUDA graphs do; as a handler it reads why graphs are skipped."""

    def __init__(self, failures: Failures) -> None:
        super().__init__(logging.WARNING)
        self._failures = failures
        self.reset()

    def reset(self) -> None:
        self._recorded: dict[GraphSide, _Recorded] = {}
        self._replays: dict[int, Iterator[int]] = {}  # node → what counts its replays
        self._skipped: Counter[Note] = Counter()

    def install(self) -> None:
        cudagraphs.watch(
            self.recorded, self.replayed, self, lambda: self._failures.guard("CUDA graphs")
        )

    def emit(self, record: logging.LogRecord) -> None:
        with self._failures.guard("CUDA graphs"):
            message = record.getMessage()
            if not _SKIPPED.match(message):
                return  # a warning of something else, such as of many distinct sizes
            reason = skip_reason(message)
            if reason in self._skipped or len(self._skipped) < MAX_REASONS:
                self._skipped[reason] += 1

    def recorded(
        self, compile_id: str, direction: str, function: int, mismatch: str | None, node: int
    ) -> None:
        """A graph was recorded; the arguments are those of `cudagraphs.watch`."""
        known = self._recorded.setdefault((compile_id, direction), _Recorded())
        if known.count:
            if function not in known.functions:
                why = _NEW_SIZES
            elif mismatch is None:
                why = _OTHER_GRAPH
            else:
                why = _WHY_AGAIN.get(mismatch, Note(notes.OTHER, mismatch))
            known.again[why] += 1
        known.count += 1
        known.functions.add(function)
        self._replays[node] = known.replays.numbers

    def replayed(self, node: int) -> None:
        numbers = self._replays.get(node)
        if numbers is not None:
            next(numbers)

    def report(self) -> CudaGraphsSection:
        """What was recorded and skipped so far."""
        if not self._recorded and not self._skipped:
            return CudaGraphsSection()
        graphs = [
            CudaGraphRecord(
                compile_id,
                direction,
                recorded=known.count,
                replayed=known.replays.value,
                re_recorded=_by_text(known.again),
            )
            for (compile_id, direction), known in list(self._recorded.items())
        ]
        again: Counter[Note] = Counter()
        for known in list(self._recorded.values()):
            again += known.again
        return CudaGraphsSection(
            recorded=sum(graph.recorded for graph in graphs),
            replayed=sum(graph.replayed for graph in graphs),
            re_recorded=_by_text(again),
            skipped=_by_text(self._skipped),
            memory_bytes=cudagraphs.pool_bytes(),
            graphs=graphs,
            reason_codes={why.text: why.code for why in [*again, *self._skipped]},
        )


def _by_text(counts: Counter[Note]) -> dict[str, int]:
    return {why.text: count for why, count in counts.items()}
