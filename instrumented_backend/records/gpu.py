"""Where the time of each GPU went."""

from dataclasses import dataclass, field

LAUNCH_BOUND, GPU_BOUND = "launch-bound", "GPU-bound"
STREAM_BOUND = "waits for other streams"


@dataclass
class GpuRow:
    """The timeline of one GPU, from the first `torch.compile` to the end, compilations apart.

    ``captured_s`` is between the events before and after each call of a graph: on a GPU that is
    busy the kernels of the call, on one that waits for the host the time that the call took. Of the
    rest, ``idle_s`` is known to be idle: the host had asked for nothing. Idle time inside of calls
    and between eager ops is not told apart.

    ``verdict`` is "launch-bound" where the GPU waits for the host, "GPU-bound" where it is behind
    the host for more than half of the time (``behind_pct``), None where nothing tells. Where it is
    behind although what it is asked for takes it less time than the asking, it "waits for other
    streams": for copies, or for collectives that other ranks are late for.
    """

    device: int
    name: str | None
    captured_s: float
    eager_s: float
    idle_s: float
    captured_pct: float | None  # of the timeline, as the next two
    eager_pct: float | None
    idle_pct: float | None
    spread_pct: float  # of the captured share, in points to either side: two standard errors
    behind_pct: float | None
    verdict: str | None
    observed_pct: float  # of the calls
    status: str  # "exact" where all calls were seen, "sampled"


@dataclass
class GpuSection:
    """One row for each GPU that graphs were called on."""

    timeline_s: float | None = None
    gpus: list[GpuRow] = field(default_factory=list)
    note: str | None = None  # why it is unknown
    note_code: str | None = None
