"""Graphs, their generated code, and its kernels."""

from dataclasses import dataclass, field

from instrumented_backend.records.notes import Noted
from instrumented_backend.records.places import place


@dataclass
class CodeRecord:
    """One module of generated code. ``kernels`` is None where the names could not be read."""

    direction: str  # "forward" or "backward"
    path: str | None
    kernels: list[str] | None


@dataclass(slots=True)  # there are thousands of them, as of the next
class GraphRecord:
    """One FX graph that Dynamo handed to the backend."""

    graph: int | None = None  # its number in the process; compile ids repeat after a reset
    compile_id: str = "?"
    function: str | None = None
    file: str | None = None
    line: int | None = None
    direction: str = "forward"  # "backward" for a graph of compiled autograd
    ops: int | None = None  # call nodes in the FX graph, getitem apart
    name: str | None = None  # torch.compile(name=...)
    compiled: int | None = None  # the torch.compile that it was made for
    config: dict[str, str] = field(default_factory=dict)  # Inductor options by mode= or options=
    ended_by: str | None = None  # the graph break after it, if one
    calls: int = 0
    backward_calls: int = 0
    forward_ops: int | None = None  # what eager would dispatch for one call
    backward_ops: int | None = None  # autograd nodes of one backward, AccumulateGrad apart
    ops_estimated: dict[str, int] = field(default_factory=dict)  # why → nodes counted as one op
    forward_time_us: float | None = None  # in its regions, over all calls
    backward_time_us: float | None = None
    longest_call_us: float | None = None  # of one forward, as is the next of one backward
    longest_backward_us: float | None = None
    forward_gpu_us: float | None = None  # of the GPU's timeline in its calls, sampled
    backward_gpu_us: float | None = None
    code: list[CodeRecord] = field(default_factory=list)
    cache: str | None = None  # "hit", "miss", "bypass", "off": were all its parts in a cache?
    cache_reason: str | None = None  # of a bypass, or what a missed key has that others had not
    saved_s: float | None = None  # what compiling took when the caches were filled
    aot_autograd_cache: str | None = None  # "hit", "miss", "bypass" or "off"
    fx_graph_cache: dict[str, int] = field(default_factory=dict)  # hits, misses, bypasses
    compile_s: dict[str, float | None] = field(default_factory=dict)  # exclusive, by phase
    inductor_metrics: dict[str, int] = field(default_factory=dict)
    counters: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def total_compile_s(self) -> float | None:
        """Of all phases; None unless each is known."""
        known = [seconds for seconds in self.compile_s.values() if seconds is not None]
        return sum(known) if known and len(known) == len(self.compile_s) else None

    @property
    def time_us(self) -> float | None:
        """In its regions, forward and backward; None where neither is known."""
        return _sum_of_known(self.forward_time_us, self.backward_time_us)

    @property
    def gpu_time_us(self) -> float | None:
        """The same of the GPU's timeline."""
        return _sum_of_known(self.forward_gpu_us, self.backward_gpu_us)

    @property
    def mean_call_us(self) -> float | None:
        """Of one forward."""
        return _mean(self.forward_time_us, self.calls)

    @property
    def mean_backward_us(self) -> float | None:
        return _mean(self.backward_time_us, self.backward_calls)

    @property
    def counter_groups(self) -> dict[str, dict[str, int]]:
        """All counters that its compilation moved, by group."""
        return {"inductor_metrics": self.inductor_metrics, **self.counters}

    def kernel_count(self, *directions: str) -> int | None:
        """How many kernels its code of these directions defines."""
        counts = [code.kernels for code in self.code if code.direction in directions]
        if any(kernels is None for kernels in counts):
            return None
        return sum(len(kernels or ()) for kernels in counts)


def _sum_of_known(*figures: float | None) -> float | None:
    known = [us for us in figures if us is not None]
    return sum(known) if known else None


def _mean(us: float | None, calls: int) -> float | None:
    return us / calls if us is not None and calls else None


@dataclass(slots=True)
class KernelRecord(Noted):
    """One kernel in a graph's generated code, or one extern call between them.

    The names are those of PyTorch's ``kernel_metadata`` table where it has the column. ``num_load``
    and ``num_store`` are the calls in the kernel's own body; Inductor's counts are beside them.
    """

    kernel_name: str
    language: str  # "triton", "cpp", "extern", ... or "unknown"
    graph: int | None = None
    direction: str | None = None  # None for a file that nobody ran
    path: str | None = None  # the graph's module
    kernel_path: str | None = None  # the kernel's own module
    kernel_category: str = "unknown"
    size_hints: dict[str, int] | list[int] | None = None  # numels, rounded up to powers of two
    reduction_hint: str | None = None
    line_of_code: int | None = None
    num_load: int | None = None
    num_store: int | None = None
    num_for_loop: int | None = None
    num_atomic_add: int | None = None
    num_reduction: int | None = None
    num_args: int | None = None
    inductor_num_load: int | None = None
    inductor_num_store: int | None = None
    xnumel: int | None = None
    ynumel: int | None = None
    znumel: int | None = None
    rnumel: int | None = None
    r0_numel: int | None = None
    r1_numel: int | None = None
    symbolic_numels: dict[str, str] = field(default_factory=dict)  # of the numels that are None
    kernel_args_num_gb: float | None = None  # only where Inductor wrote it into the code
    grid_type: str | None = None
    arg_dtypes: dict[str, str] = field(default_factory=dict)
    arg_shapes: dict[str, list[int | str]] = field(default_factory=dict)  # at the first call
    mutated_args: list[str] = field(default_factory=list)
    device: str | None = None
    compute_capability: str | None = None  # "9.0"
    vectorized: bool | None = None  # C++ only, as is the next
    parallel: bool | None = None
    calls: int | None = None  # in one call of the graph
    total_bytes: int | None = None  # read and written by one launch, as are the next three
    read_bytes: int | None = None
    written_bytes: int | None = None
    flops: int | None = None
    device_calls: int | None = None  # in the run itself, as are the next four
    device_time_us: float | None = None  # of one call, on the device where it computes
    device_time_total_us: float | None = None
    gb_per_s: float | None = None
    peak_pct: float | None = None  # of the device's memory bandwidth
    bytes_source: str | None = None  # "inductor": exact, its own figure; "estimated": see the notes
    flops_source: str | None = None
    aten_ops: list[str] = field(default_factory=list)  # that it was fused from
    fx_nodes: list[str] = field(default_factory=list)
    source_lines: list[str] = field(default_factory=list)  # "file.py:12", the user's own
    op_lines: dict[str, list[str]] = field(default_factory=dict)  # those of each ATen op
    extern_positions: list[int] = field(default_factory=list)  # among the graph's extern calls
    library_kernels: dict[str, float] = field(default_factory=dict)  # µs in one extern call
    notes: list[str] = field(default_factory=list)
    note_codes: list[str] = field(default_factory=list)

    @property
    def places(self) -> list[tuple[str, int | None]]:
        """The source lines, as file and line."""
        return [place(text) for text in self.source_lines]

    @property
    def moved_gb(self) -> float | None:
        """Read and written by one launch."""
        return None if self.total_bytes is None else self.total_bytes / 1e9
