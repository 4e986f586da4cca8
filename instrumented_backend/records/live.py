"""The parts of a report that tell how a program is doing, read in a fraction of the time."""

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from instrumented_backend.records import bounded
from instrumented_backend.records.causes import BreakRecord, RecompileRecord
from instrumented_backend.records.compilation import CompileSection, Compiling
from instrumented_backend.records.compiled import CompiledRecord
from instrumented_backend.records.decoding import decode
from instrumented_backend.records.gpu import GpuSection
from instrumented_backend.records.ledger import LedgerSection
from instrumented_backend.records.report import RunSection, SummarySection
from instrumented_backend.records.store import content_of
from instrumented_backend.records.version import SCHEMA_VERSION, ReportError


@dataclass
class LiveReport:
    """A `Report` without what is long: graphs, kernels, ops and counters."""

    run: RunSection
    summary: SummarySection
    breaks: list[BreakRecord]
    recompiles: list[RecompileRecord]
    compile: CompileSection
    schema_version: int
    ledger: LedgerSection = field(default_factory=LedgerSection)
    compiled: list[CompiledRecord] = field(default_factory=list)
    compiling: list[Compiling] = field(default_factory=list)
    gpu: GpuSection = field(default_factory=GpuSection)


def read_live(path: Path) -> LiveReport:
    """Out of a report's file; raises `ReportError` with the path in its one line."""
    try:
        text = bounded.decoded(content_of(path))
    except bounded.NotReadable as error:
        raise ReportError(f"not a report of instrumented-backend: {error}", path) from None
    try:
        # What is not asked for is passed over, and not decoded.
        report = msgspec.json.decode(text, type=LiveReport)
        is_current = report.run.program is not None  # or of an earlier release
        if report.schema_version == SCHEMA_VERSION and is_current:
            return report
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        pass  # names that are no UTF-8, or what the slower way has words for
    try:
        return decode(text, LiveReport)
    except ReportError as error:
        raise ReportError(error.problem, path) from None
