"""Ops in compiled regions and outside of them, and kernel time on GPUs."""

from dataclasses import dataclass, field

from instrumented_backend.records.gaps import GapRecord


@dataclass
class EagerOpRecord:
    """Eager ops of one name, over the whole run."""

    op: str
    count: int
    time_us: float
    share_pct: float  # of the time in eager ops
    op_time_pct: float | None = None  # of all op time
    count_spread: float | None = None  # to either side, two standard errors; 0 is exact
    gpu_time_us: float | None = None  # of the GPU's timeline, sampled; None: not known


@dataclass
class MissingRecord:
    """Eager ops of one name on one of the user's lines, over the whole run.

    Lines are found by samples: ``count`` is exact only where each of the ops was sampled.
    """

    op: str
    file: str | None
    line: int | None
    function: str | None
    count: int
    time_us: float
    share_pct: float  # of the time in eager ops
    op_time_pct: float | None = None  # of all op time
    count_spread: float | None = None  # to either side, two standard errors
    gpu_time_us: float | None = None  # of the GPU's timeline, sampled; None: not known


@dataclass
class DeviceKernelRecord:
    """All launches of one kernel that the windows saw; ``captured_*`` were made in regions."""

    kernel: str
    device: int | str | None
    count: int
    time_us: float
    share_pct: float  # of all kernel time
    captured_count: int
    captured_us: float


@dataclass
class DeviceRecord:
    """Kernel time on GPUs, as the windows saw it; not extrapolated."""

    status: str  # "sampled" or "unknown"
    windows: int
    observed_pct: float | None  # of the graph calls
    window_us: float
    busy_us: float  # at least one kernel was running; summed over GPUs
    kernel_us: float
    captured_us: float
    pct_captured: float | None
    kernels: list[DeviceKernelRecord]
    note: str | None


@dataclass
class CapturedRecord:
    """What the graphs would have cost in eager; None where a graph that ran is not known."""

    ops: int | None = None
    forward_ops: int | None = None
    backward_ops: int | None = None
    time_us: float | None = None  # in regions
    estimated: list[str] = field(default_factory=list)  # why some of the ops are


@dataclass
class OpsRecord:
    """Captured against total. ``*_spread`` is to either side, two standard errors; 0 is exact."""

    status: str  # "exact", "sampled" or "unknown"
    observed_pct: float | None  # of the time outside regions
    captured: CapturedRecord
    total_ops: int | None
    total_time_us: float | None
    pct_ops_spread: float | None
    pct_time_spread: float | None
    eager: list[EagerOpRecord]
    missing: list[MissingRecord]
    note: str | None  # why something is unknown or estimated
    device: DeviceRecord | None = None  # with INSTRUMENTED_DEVICE_TIME=on
    unaccounted_s: float | None = None  # of the run: what the calls seen don't explain
    note_code: str | None = None
    gaps: list[GapRecord] = field(default_factory=list)  # that took the most time
    listed_at: float | None = None  # of when `eager` and `missing` are; None: as all the rest

    @property
    def largest_spread(self) -> float | None:
        """Of the two percentages, in points; None where neither is sampled."""
        return max(filter(None, (self.pct_ops_spread, self.pct_time_spread)), default=None)

    def share_of_op_time(self, record: EagerOpRecord | MissingRecord) -> float:
        """In percent; reports of the last release don't have it in the record."""
        if record.op_time_pct is not None:
            return record.op_time_pct
        return self.pct_of_op_time(record.time_us)

    def pct_of_op_time(self, time_us: float) -> float:
        return 100 * (time_us / self.total_time_us) if self.total_time_us else 0.0
