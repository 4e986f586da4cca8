"""What is kept of a rank's report to compare it with others: a thousand of them fit in memory."""

import datetime
import functools
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from instrumented_backend.records.collectives import CollectiveGap
from instrumented_backend.records.compilation import CacheStates
from instrumented_backend.records.graphs import CodeRecord
from instrumented_backend.records.report import Report, RunSection, SummarySection
from instrumented_backend.records.version import SCHEMA_VERSION, ReportError

if TYPE_CHECKING:
    import msgspec

AT_RUN_TIME = "run time"  # the outcome of what is tuned or recorded while the program runs

Function = tuple[str | None, str | None, int | None]  # a function: name, file, first line


@dataclass
class RankGraph:
    """Of a `GraphRecord`."""

    graph: int | None = None
    direction: str = "forward"
    ops: int | None = None
    code: list[CodeRecord] = field(default_factory=list)
    cache: str | None = None

    @property
    def kernels(self) -> tuple[str, ...] | None:
        """The names of its forward's; None where they could not be read."""
        known = [code.kernels for code in self.code if code.direction == "forward"]
        if any(kernels is None for kernels in known):
            return None
        return tuple(name for kernels in known for name in kernels or ())


@dataclass
class RankCompilation:
    """Of a `CompileRecord`."""

    compile_id: str
    direction: str
    function: str | None
    file: str | None
    line: int | None
    outcome: str
    graphs: list[int | None]
    total_s: float | None
    started_at: float | None = None
    call: int | None = None
    guard: str | None = None
    guard_file: str | None = None
    guard_line: int | None = None

    @property
    def place(self) -> Function:
        return self.function, self.file, self.line

    @property
    def span(self) -> tuple[float, float] | None:
        """From when to when, in seconds since 1970."""
        if self.started_at is None or self.total_s is None:
            return None
        return self.started_at, self.started_at + self.total_s


@dataclass
class RankCompiling:
    """Of a `CompileSection`."""

    total_s: float
    compilations: list[RankCompilation]


@dataclass
class RankCaches:
    """Of a `CachesSection`."""

    graphs: CacheStates


@dataclass
class RankReport:
    """Of a `Report`: the parts that are compared."""

    run: RunSection
    summary: SummarySection
    graphs: list[RankGraph]
    caches: RankCaches
    compile: RankCompiling
    collectives: list[CollectiveGap] = field(default_factory=list)
    schema_version: int = SCHEMA_VERSION
    file_name: str | None = None  # where it was read

    @classmethod
    def of(cls, report: Report) -> "RankReport":
        import msgspec

        return msgspec.convert(report, cls, from_attributes=True)

    @classmethod
    def from_json(cls, text: bytes) -> "RankReport":
        """Reads no more of a report's file than it keeps.

        Raises `ReportError`, for all that `Report.from_json` refuses in these parts, too.
        """
        import msgspec

        try:
            report = _decoder().decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError):
            # Not what Python's own JSON reads; or a name that is no UTF-8; or none of ours.
            report = None
        if report is None or report.schema_version != SCHEMA_VERSION:
            try:
                return cls.of(Report.from_json(text.decode("utf-8")))
            except UnicodeDecodeError:
                raise ReportError("not a report of instrumented-backend: not text") from None
        return report

    def to_bytes(self) -> bytes:
        from instrumented_backend.records.encoding import encode_line

        return zlib.compress(encode_line(self).encode())

    @classmethod
    def from_bytes(cls, data: bytes) -> "RankReport":
        return cls.from_json(zlib.decompress(data))

    @property
    def started_at(self) -> float | None:
        """When its observation began, in seconds since 1970; whole ones."""
        if self.run.started is None:
            return None
        try:
            return datetime.datetime.fromisoformat(self.run.started).timestamp()
        except (ValueError, OverflowError, OSError):
            return None

    @property
    def ended_at(self) -> float | None:
        started_at = self.started_at
        return None if started_at is None else started_at + (self.run.wall_s or 0.0)


@functools.cache
def _decoder() -> "msgspec.json.Decoder[RankReport]":
    import msgspec

    return msgspec.json.Decoder(RankReport)
