"""What compiling took, where the code came from, and the counters that it moved."""

from dataclasses import dataclass, field

from instrumented_backend.records.notes import MUTATED_INPUTS, NEW_SIZES

Phases = dict[str, float | None]  # "dynamo_s", "codegen_s", ...: exclusive, so that they add up
CounterGroups = dict[str, dict[str, int]]


def longest_first(phases: Phases | dict[str, float]) -> list[tuple[str, float]]:
    """The phases that took any time, ``("dynamo_s", 0.5)``."""
    return sorted(
        ((name, took) for name, took in phases.items() if took),
        key=lambda phase: (phase[1], phase[0]),
        reverse=True,
    )


@dataclass
class CompileRecord:
    """One compilation by Dynamo (of a function, or of one graph's backward), graph or no graph."""

    compile_id: str
    direction: str
    function: str | None
    file: str | None
    line: int | None
    outcome: str  # "compiled", "skipped", "failed"; "run time": tuning, recording CUDA graphs
    graphs: list[int | None]
    phases_s: Phases
    total_s: float | None
    started_at: float | None = None  # seconds since 1970
    call: int | None = None  # which call of its torch.compile it was made in, from 1 on
    guard: str | None = None  # of a recompilation, the first that failed: "size of x: 4 → 5"
    guard_file: str | None = None  # the user's line that made the guard
    guard_line: int | None = None


@dataclass
class CudaGraphRecord:
    """The CUDA graphs that were recorded for one direction of a graph."""

    compile_id: str
    direction: str
    recorded: int
    replayed: int
    re_recorded: dict[str, int] = field(default_factory=dict)  # why → how often


@dataclass
class CudaGraphsSection:
    """CUDA graphs of ``mode="reduce-overhead"``. The file has ``{}`` where there were none."""

    recorded: int = 0
    replayed: int = 0
    re_recorded: dict[str, int] = field(default_factory=dict)  # why → how often
    skipped: dict[str, int] = field(default_factory=dict)  # why → how often
    memory_bytes: int | None = None  # in their pools
    graphs: list[CudaGraphRecord] = field(default_factory=list)
    reason_codes: dict[str, str] = field(default_factory=dict)  # of the reasons why (`notes`)

    @property
    def were_tried(self) -> bool:
        return bool(self.graphs or self.recorded or self.skipped)

    @property
    def had_new_sizes(self) -> bool:
        return any(self.reason_codes.get(why) == NEW_SIZES for why in self.re_recorded)

    @property
    def had_mutated_inputs(self) -> bool:
        return any(self.reason_codes.get(why) == MUTATED_INPUTS for why in self.skipped)


@dataclass
class Compiling:
    """A compilation that is under way; the outermost one of its thread."""

    compile_id: str
    function: str | None
    file: str | None
    line: int | None
    since_at: float  # seconds since 1970
    why: str | None = None  # of a recompilation: the guard that failed, in our words
    guard_file: str | None = None  # the user's line that made the guard
    guard_line: int | None = None
    direction: str = "forward"  # or "backward": later than its forward


@dataclass
class CompileSection:
    """All compilations. The parts are None in reports of releases that did not have them."""

    total_s: float
    phases: dict[str, float]
    compilations: list[CompileRecord]
    count: int | None = None
    forward_s: float | None = None
    backward_s: float | None = None
    first_s: float | None = None
    later_s: float | None = None  # recompilations
    run_time_s: float | None = None  # tuning, recording CUDA graphs
    cudagraphs: CudaGraphsSection = field(default_factory=CudaGraphsSection)

    def pct_of_total(self, seconds: float | None) -> float:
        return 100 * (seconds or 0.0) / self.total_s if self.total_s else 0.0


@dataclass
class CacheStates:
    """How many graphs had all their parts in a cache."""

    hit: int
    miss: int
    bypass: int
    off: int


@dataclass
class CacheLookups:
    """Look-ups in one cache."""

    hits: int = 0
    misses: int = 0
    bypasses: int = 0


@dataclass
class KernelCode:
    """Where the kernels' machine code came from."""

    cpp_files_compiled: int = 0
    triton_kernels_compiled: int = 0
    triton_kernels_from_cache: int = 0
    triton_files_from_entries: int = 0


@dataclass
class Autotuning:
    """What was timed to choose among, and what a cache spared; the latter of Triton kernels."""

    kernels_tuned: int = 0
    products_tuned: int = 0
    cache_hits: int = 0
    cache_misses: int = 0


@dataclass
class CachesSection:
    """What the caches held, over all graphs."""

    graphs: CacheStates
    bypass_reasons: dict[str, int]  # why → graphs
    aot_autograd: dict[str, int] = field(default_factory=dict)  # state → graphs
    fx_graph: CacheLookups = field(default_factory=CacheLookups)
    saved_s: float | None = None  # what compiling took when the caches were filled
    bytes: int | None = None  # of the entries on disk that were looked up
    code: KernelCode = field(default_factory=KernelCode)
    autotune: Autotuning = field(default_factory=Autotuning)


@dataclass
class CountersSection:
    """Inductor's and Dynamo's counters: what the graphs' compilations moved, and the rest."""

    inductor_metrics: dict[str, int]
    graphs: CounterGroups
    outside_inductor_metrics: dict[str, int]
    outside_graphs: CounterGroups

    @property
    def in_graphs(self) -> CounterGroups:
        return {"inductor_metrics": self.inductor_metrics, **self.graphs}

    @property
    def outside(self) -> CounterGroups:
        return {"inductor_metrics": self.outside_inductor_metrics, **self.outside_graphs}

    @property
    def in_all(self) -> CounterGroups:
        """Sums over both."""
        sums: CounterGroups = {}
        for groups in (self.in_graphs, self.outside):
            for group, members in groups.items():
                total = sums.setdefault(group, {})
                for name, value in members.items():
                    total[name] = total.get(name, 0) + value
        return sums
