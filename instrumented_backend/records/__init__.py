"""Everything that was observed, as plain data: what the observers write and the reports draw.

Units are in the names (``_s``, ``_us``, ``_bytes``). ``None`` is "unknown", and a note says why.
Nothing here imports torch, so that a saved report can be read on any machine.
"""

from instrumented_backend.records.causes import (
    BreakRecord,
    GuardRecord,
    RecompileRecord,
    SkippedRecord,
)
from instrumented_backend.records.collectives import CollectiveGap
from instrumented_backend.records.compilation import (
    Autotuning,
    CacheLookups,
    CachesSection,
    CacheStates,
    CompileRecord,
    CompileSection,
    Compiling,
    CountersSection,
    CudaGraphRecord,
    CudaGraphsSection,
    KernelCode,
)
from instrumented_backend.records.compiled import CompiledRecord
from instrumented_backend.records.gaps import GapLineRecord, GapRecord
from instrumented_backend.records.gpu import (
    GPU_BOUND,
    LAUNCH_BOUND,
    STREAM_BOUND,
    GpuRow,
    GpuSection,
)
from instrumented_backend.records.graphs import CodeRecord, GraphRecord, KernelRecord
from instrumented_backend.records.ledger import LedgerRow, LedgerSection
from instrumented_backend.records.lines import FileRecord, LineRecord
from instrumented_backend.records.next_steps import NextStep
from instrumented_backend.records.notes import Note, Noted
from instrumented_backend.records.ops import (
    CapturedRecord,
    DeviceKernelRecord,
    DeviceRecord,
    EagerOpRecord,
    MissingRecord,
    OpsRecord,
)
from instrumented_backend.records.report import Report, RunSection, SummarySection
from instrumented_backend.records.store import find_reports, read_rank, read_report, read_runs
from instrumented_backend.records.version import SCHEMA_VERSION, ReportError

__all__ = [
    "GPU_BOUND",
    "LAUNCH_BOUND",
    "SCHEMA_VERSION",
    "STREAM_BOUND",
    "Autotuning",
    "BreakRecord",
    "CacheLookups",
    "CacheStates",
    "CachesSection",
    "CapturedRecord",
    "CodeRecord",
    "CollectiveGap",
    "CompileRecord",
    "CompileSection",
    "CompiledRecord",
    "Compiling",
    "CountersSection",
    "CudaGraphRecord",
    "CudaGraphsSection",
    "DeviceKernelRecord",
    "DeviceRecord",
    "EagerOpRecord",
    "FileRecord",
    "GapLineRecord",
    "GapRecord",
    "GpuRow",
    "GpuSection",
    "GraphRecord",
    "GuardRecord",
    "KernelCode",
    "KernelRecord",
    "LedgerRow",
    "LedgerSection",
    "LineRecord",
    "MissingRecord",
    "NextStep",
    "Note",
    "Noted",
    "OpsRecord",
    "RecompileRecord",
    "Report",
    "ReportError",
    "RunSection",
    "SkippedRecord",
    "SummarySection",
    "find_reports",
    "read_rank",
    "read_report",
    "read_runs",
]
