"""The report: its sections, and the records in them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from instrumented_backend.records.causes import BreakRecord, RecompileRecord
from instrumented_backend.records.collectives import CollectiveGap
from instrumented_backend.records.compilation import (
    CachesSection,
    CompileSection,
    Compiling,
    CountersSection,
)
from instrumented_backend.records.compiled import CompiledRecord
from instrumented_backend.records.gpu import GpuSection
from instrumented_backend.records.graphs import GraphRecord, KernelRecord
from instrumented_backend.records.ledger import LedgerSection
from instrumented_backend.records.lines import FileRecord, LineRecord
from instrumented_backend.records.next_steps import NextStep
from instrumented_backend.records.notes import Noted
from instrumented_backend.records.ops import OpsRecord
from instrumented_backend.records.version import SCHEMA_VERSION

# What `RunSection.status` says. A process that is killed leaves "running" and an old `seen_at`.
RUNNING = "running"
ENDED = "ended"
INTERRUPTED = "interrupted"


@dataclass
class RunSection:
    """The process."""

    torch: str
    device: str
    rank: int
    pid: int
    python: str | None = None
    command: str | None = None
    started: str | None = None  # ISO 8601, UTC
    wall_s: float | None = None
    worker: str | None = None  # what its parent calls it: "DataLoader worker 0", "SpawnProcess-1"
    status: str = ENDED  # "running", "ended" or "interrupted": killed by a signal that we saw
    seen_at: float | None = None  # the last moment observed, in seconds since 1970
    job: str | None = None  # what the launcher's environment calls the run; one for all its ranks
    world_size: int | None = None  # None outside distributed jobs
    restart: int | None = None  # how often the launcher has started the ranks again
    host: str | None = None
    program: str | None = None  # the script's name
    float32_matmul_precision: str | None = None  # of a GPU: "highest", "high", "medium"


@dataclass
class SummarySection:
    """The figures of the first lines; None is unknown."""

    graphs: int
    graph_calls: int
    backward_calls: int
    graph_breaks: int
    skipped_functions: int
    recompiles: int
    graph_ops: int
    captured_ops: int | None
    total_ops: int | None
    pct_ops: float | None
    pct_time: float | None


@dataclass
class Report(Noted):
    """All of it; the sections are those of the report file."""

    run: RunSection
    summary: SummarySection
    graphs: list[GraphRecord]
    kernels: list[KernelRecord]
    ops: OpsRecord
    breaks: list[BreakRecord]
    recompiles: list[RecompileRecord]
    caches: CachesSection
    counters: CountersSection
    compile: CompileSection
    notes: list[str]
    note_codes: list[str] = field(default_factory=list)
    ledger: LedgerSection = field(default_factory=LedgerSection)
    compiled: list[CompiledRecord] = field(default_factory=list)
    next_steps: list[NextStep] = field(default_factory=list)  # set when the report is delivered
    compiling: list[Compiling] = field(default_factory=list)
    collectives: list[CollectiveGap] = field(default_factory=list)
    schema_version: int = SCHEMA_VERSION
    lines: list[LineRecord] = field(default_factory=list)
    files: list[FileRecord] = field(default_factory=list)
    gpu: GpuSection = field(default_factory=GpuSection)

    # Set by the views, which records know nothing of.
    drawn_as_text: ClassVar[Callable[["Report"], str]] = repr
    drawn_as_html: ClassVar[Callable[["Report"], str | None]] = lambda report: None

    def __str__(self) -> str:
        """The summary."""
        return type(self).drawn_as_text(self)

    def _repr_html_(self) -> str | None:
        """In a notebook: the page."""
        return type(self).drawn_as_html(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """In IPython: the summary, and not thousands of fields."""
        printer.text(str(self))

    # msgspec is imported when a report is written or read, and not with the backend.

    def to_json(self) -> str:
        """One line for each section, and for each item of a section that is a list."""
        from instrumented_backend.records.encoding import encode

        return encode(self)

    def encoded(self, known: dict[str, tuple[list[Any], bytes]]) -> Iterator[bytes]:
        """The same piece by piece, with fewer spaces.

        ``known`` has texts of lists, for the next report: where it has the same list, not another
        that is equal, it has that text.
        """
        from instrumented_backend.records.encoding import encoded

        return encoded(self, known)

    @classmethod
    def from_json(cls, text: str) -> "Report":
        """Raises `ReportError` where the text is not JSON, not a report, or of another version."""
        from instrumented_backend.records.decoding import decode

        return decode(text, cls)
