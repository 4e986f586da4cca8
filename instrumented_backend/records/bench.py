"""What a benchmark finds, as plain data; no torch import. ``None`` is unknown, a note says why."""

from dataclasses import dataclass, field

from instrumented_backend.records import KernelRecord, Note, Noted, notes
from instrumented_backend.units import size


@dataclass
class Peak:
    """A device's memory bandwidth, as measured by a large copy and as its maker says."""

    device: str  # "cpu", "cuda"
    device_name: str
    copy_gb_per_s: float
    copy_bytes: int  # of the source; a copy moves twice as much
    datasheet_gb_per_s: float | None = None
    datasheet_source: str | None = None
    cache_bytes: int | None = None  # of the last level
    launch_ms: float | None = None  # on a GPU: between two events around an add of one element

    @property
    def gb_per_s(self) -> float:
        """What shares of peak are compared with."""
        return self.copy_gb_per_s if self.datasheet_gb_per_s is None else self.datasheet_gb_per_s

    @property
    def source(self) -> str:
        return "measured copy" if self.datasheet_gb_per_s is None else "datasheet"


@dataclass
class Timing:
    """Times of one launch: the median, the quartiles, the least, and how many samples there are."""

    ms: float
    min_ms: float
    p25_ms: float
    p75_ms: float
    samples: int

    @property
    def spread_pct(self) -> float | None:
        """From quartile to quartile, of the median."""
        return 100 * (self.p75_ms - self.p25_ms) / self.ms if self.ms else None


# What `BenchRecord.timing` is of.
IN_GRAPH = "in graph"  # where the launches are in calls of the whole graph
ALONE = "alone"  # launched again and again on the same data


@dataclass
class BenchRecord(Noted):
    """One kernel at one set of shapes, or one configuration of it (``--all-configs``).

    ``kernel`` describes it at the shapes that it was timed with. ``timing`` is None where it could
    not be timed; ``error`` says why. On CUDA, ``warm`` and ``cold`` are of launches made alone:
    with what the launch before left in the caches, and with an empty L2 cache.
    """

    kernel: KernelRecord
    timing: Timing | None = None
    error: str | None = None
    config: str | None = None
    chosen: bool = True  # False for a configuration that the autotuner did not take
    n_regs: int | None = None
    n_spills: int | None = None
    shared_bytes: int | None = None
    peak: Peak | None = None
    notes: list[str] = field(default_factory=list)
    note_codes: list[str] = field(default_factory=list)
    timed: str | None = None  # `IN_GRAPH` or `ALONE`
    warm: Timing | None = None
    cold: Timing | None = None

    @property
    def gb_per_s(self) -> float | None:
        """Bytes that one launch moves, over its time."""
        if self.timing is None or not self.timing.ms or self.kernel.total_bytes is None:
            return None
        return self.kernel.total_bytes / self.timing.ms / 1e6

    @property
    def gflop_per_s(self) -> float | None:
        if self.timing is None or not self.timing.ms or self.kernel.flops is None:
            return None
        return self.kernel.flops / self.timing.ms / 1e6

    @property
    def peak_pct(self) -> float | None:
        return self.share_of(self.peak.gb_per_s if self.peak else None)

    @property
    def copy_pct(self) -> float | None:
        return self.share_of(self.peak.copy_gb_per_s if self.peak else None)

    def share_of(self, gb_per_s: float | None) -> float | None:
        """In percent."""
        mine = self.gb_per_s
        return None if mine is None or not gb_per_s else 100 * (mine / gb_per_s)


@dataclass
class GraphBench:
    """One graph as a whole: its compiled call, and what its kernels and externs add up to."""

    path: str
    call: Timing | None = None
    kernels_ms: float | None = None  # None unless every launch was timed
    error: str | None = None
    profile: str | None = None  # the report, as text

    @property
    def kernels_pct(self) -> float | None:
        """Of the compiled call's time."""
        if self.call is None or self.kernels_ms is None:
            return None
        return 100 * self.kernels_ms / self.call.ms


@dataclass
class BenchRun:
    """All that was benchmarked. ``left_out`` says why a module or a file was not."""

    kernels: list[BenchRecord] = field(default_factory=list)
    graphs: list[GraphBench] = field(default_factory=list)
    peaks: dict[str, Peak] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False

    @property
    def timed_anything(self) -> bool:
        timings = [*(record.timing for record in self.kernels), *(g.call for g in self.graphs)]
        return any(timing is not None for timing in timings)


_TELLING = 0.1  # of a time: less is not worth a note


def explain(record: BenchRecord) -> list[Note]:
    """Notes about a record's own figures: spread, caches, what passes the bandwidth of memory."""
    found: list[Note] = []
    timing, peak = record.timing, record.peak
    if timing is None:
        return found
    if timing.p75_ms - timing.p25_ms > 0.1 * timing.ms:
        text = f"unsteady: half of the samples took {timing.p25_ms:.3g} to {timing.p75_ms:.3g} ms"
        found.append(Note(notes.UNSTEADY, text))
    cold = record.cold
    if record.timed == ALONE and cold is not None and cold.ms > (1 + _TELLING) * timing.ms:
        text = (
            "timed alone, again and again on the same data; with an empty cache it takes "
            f"{cold.ms:.3g} ms"
        )
        found.append(Note(notes.TIMED_WARM, text))
    share = record.copy_pct
    moved = record.kernel.total_bytes
    if peak is None or share is None or moved is None:
        return found
    cache = peak.cache_bytes or 0
    if share > 100 and moved <= cache:
        text = f"faster than memory: its {size(moved)} stay in the cache of {size(cache)}"
        return [*found, Note(notes.FROM_CACHE, text)]
    if share > 100:
        reads = record.kernel.read_bytes
        why = (
            "it reads next to nothing, and writing alone is faster"
            if reads is not None and reads < _TELLING * moved
            else "part of the bytes that are counted never reach memory, such as those read again "
            "from a cache"
        )
        text = f"faster than a copy ({peak.copy_gb_per_s:.4g} GB/s): {why}"
        found.append(Note(notes.FASTER_THAN_COPY, text))
    return found


def timing_of(samples: list[float]) -> Timing:
    """The quartiles of some times in ms, linearly interpolated. Raises ValueError for none."""
    if not samples:
        raise ValueError("no samples")
    ordered = sorted(samples)

    def quantile(share: float) -> float:
        place = share * (len(ordered) - 1)
        low = int(place)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (ordered[high] - ordered[low]) * (place - low)

    return Timing(quantile(0.5), ordered[0], quantile(0.25), quantile(0.75), len(ordered))
