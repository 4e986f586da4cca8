"""Everything that was observed, as plain data: what the observers write and the reports draw.

Units are in the names (``_s``, ``_us``, ``_bytes``). ``None`` is "unknown", and a note says why.
Nothing here imports torch, so that a saved report can be read on any machine.
"""

import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SCHEMA_VERSION = 1
_REPORT_NAME = re.compile(r"report\.rank(\d+)\.pid(\d+)\.json")


class ReportError(ValueError):
    """A file is not a report that we can read; the message is one line."""


@dataclass
class CodeRecord:
    """One module of generated code. ``kernels`` is None where the names could not be read."""

    direction: str  # "forward" or "backward"
    path: str | None
    kernels: list[str] | None


@dataclass
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
    config: dict[str, str] = field(default_factory=dict)  # Inductor options by mode= or options=
    ended_by: str | None = None  # the graph break after it, if one
    calls: int = 0
    backward_calls: int = 0
    forward_ops: int | None = None  # what eager would dispatch for one call
    backward_ops: int | None = None  # autograd nodes of one backward, AccumulateGrad apart
    ops_estimated: dict[str, int] = field(default_factory=dict)  # why → nodes counted as one op
    forward_time_us: float | None = None  # in its regions, over all calls
    backward_time_us: float | None = None
    code: list[CodeRecord] = field(default_factory=list)
    cache: str | None = None  # "hit", "miss", "bypass", "off": were all its parts in a cache?
    cache_reason: str | None = None  # of a bypass, or what a missed key has that others had not
    saved_s: float | None = None  # what compiling took when the caches were filled
    aot_autograd_cache: str | None = None  # "hit", "miss", "bypass" or "off"
    fx_graph_cache: dict[str, int] = field(default_factory=dict)  # hits, misses, bypasses
    compile_s: dict[str, float | None] = field(default_factory=dict)  # exclusive, by phase
    inductor_metrics: dict[str, int] = field(default_factory=dict)
    counters: dict[str, dict[str, int]] = field(default_factory=dict)


@dataclass
class KernelRecord:
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
    notes: list[str] = field(default_factory=list)


@dataclass
class EagerOpRecord:
    """Eager ops of one name, over the whole run."""

    op: str
    count: int
    time_us: float
    share_pct: float  # of the time in eager ops


@dataclass
class MissingRecord:
    """Eager ops of one name on one of the user's lines, over the whole run."""

    op: str
    file: str | None
    line: int | None
    function: str | None
    count: int
    time_us: float
    share_pct: float  # of the time in eager ops


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
class OpsRecord:
    """Captured against total. ``*_spread`` is to either side, two standard errors; 0 is exact."""

    status: str  # "exact", "sampled" or "unknown"
    observed_pct: float | None  # of the graph calls
    captured: dict[str, Any]  # ops, forward_ops, backward_ops, time_us, estimated
    total_ops: float | None
    total_time_us: float | None
    pct_ops_spread: float | None
    pct_time_spread: float | None
    eager: list[EagerOpRecord]
    missing: list[MissingRecord]
    note: str | None  # why something is unknown or estimated
    device: DeviceRecord | None = None  # with INSTRUMENTED_DEVICE_TIME=on
    unaccounted_s: float | None = None  # of the run: what the calls seen don't explain


@dataclass
class SkippedRecord:
    """One function that Dynamo left to eager execution as a whole."""

    function: str | None
    file: str | None
    line: int | None  # its first
    reason: str | None = None  # why it could not be split, where that is not the break itself


@dataclass
class BreakRecord:
    """One distinct cause that ended a graph, or that left a whole function to eager execution.

    Eager ops are those that ran because of it: in the functions that were skipped, and between the
    graph before it and the next region. None is "not seen".
    """

    kind: str  # "break": split there; "skipped": whole functions ran eagerly; "gave up": no break
    reason: str
    file: str | None
    line: int | None
    function: str | None
    count: int = 0  # compilations that met it
    source: str | None = None  # the line's text
    hint: str | None = None  # what to do
    called_file: str | None = None  # the user's own line, where the break is in a package
    called_line: int | None = None
    skipped: list[SkippedRecord] = field(default_factory=list)
    graphs_before: list[int] = field(default_factory=list)
    graphs_after: list[int] = field(default_factory=list)
    eager_ops: int | None = None
    eager_time_us: float | None = None


@dataclass
class GuardRecord:
    """One guard that failed, in all recompilations of a function."""

    kind: str  # "shape", "dtype", "int", "grad_mode", ...
    subject: str  # "size of x in dimension 0"
    values: list[str] = field(default_factory=list)  # the first distinct ones, as they came
    more_values: bool = False
    count: int = 0  # recompilations in which it failed
    file: str | None = None  # the user's line that made the guard
    line: int | None = None
    source: str | None = None
    cure: str | None = None
    reason: str | None = None  # torch's own words, the first time


@dataclass
class RecompileRecord:
    """A function that was compiled again; ``compile_id`` and ``reason`` are of the first time."""

    compile_id: str
    function: str | None
    file: str | None
    line: int | None
    reason: str | None
    count: int = 1
    compile_s: float = 0.0  # spent on compiling it again, lazy backwards included
    limit_hits: int = 0  # calls refused because of the recompile limit
    limit_raised: int = 0  # of these, where the program got an exception (fullgraph=True)
    guards: list[GuardRecord] = field(default_factory=list)
    guards_left_out: int = 0  # failures of further guards, not listed


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
    phases_s: dict[str, float | None]  # exclusive, so that they add up to the total
    total_s: float | None


@dataclass
class Report:
    """All of it; the sections are those of the report file."""

    run: dict[str, Any]
    summary: dict[str, Any]
    graphs: list[GraphRecord]
    kernels: list[KernelRecord]
    ops: OpsRecord
    breaks: list[BreakRecord]
    recompiles: list[RecompileRecord]
    caches: dict[str, Any]
    counters: dict[str, Any]
    compile: dict[str, Any]
    notes: list[str]
    schema_version: int = SCHEMA_VERSION

    def to_json(self) -> str:
        """One line for each section, and for each item of a section that is a list."""
        sections = (
            f" {json.dumps(section)}: {_lines(value)}" for section, value in vars(self).items()
        )
        return "{\n" + ",\n".join(sections) + "\n}"

    @classmethod
    def from_json(cls, text: str) -> "Report":
        """Raises `ReportError` where the text is not JSON, not a report, or of another version."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ReportError(f"not JSON, or cut short ({error})") from None
        if not isinstance(data, dict) or "schema_version" not in data:
            raise ReportError("not a report of instrumented-backend: no schema_version in it")
        version = data["schema_version"]
        if version != SCHEMA_VERSION:
            raise ReportError(
                f"schema_version is {version!r}; this version reads {SCHEMA_VERSION} only"
            )
        try:
            compilations = [CompileRecord(**item) for item in data["compile"]["compilations"]]
            return cls(
                **{
                    **data,
                    "graphs": [_graph(item) for item in data["graphs"]],
                    "ops": _ops(data["ops"]),
                    "kernels": [KernelRecord(**item) for item in data["kernels"]],
                    "breaks": [_break(item) for item in data["breaks"]],
                    "recompiles": [_recompile(item) for item in data["recompiles"]],
                    "compile": {**data["compile"], "compilations": compilations},
                }
            )
        except (TypeError, KeyError, AttributeError) as error:
            raise ReportError(f"damaged: {error}") from None


def _lines(value: Any) -> str:
    # Without an indent, which would take the json module's slow path.
    if isinstance(value, list) and value:
        return "[\n  " + ",\n  ".join(json.dumps(item, default=vars) for item in value) + "\n ]"
    return json.dumps(value, default=vars)


def _graph(data: dict[str, Any]) -> GraphRecord:
    return GraphRecord(**{**data, "code": [CodeRecord(**code) for code in data["code"]]})


def _break(data: dict[str, Any]) -> BreakRecord:
    if "skipped" not in data and data["kind"] == "skipped":
        # Of an earlier release, which listed functions and breaks apart.
        function = SkippedRecord(data["function"], data["file"], data["line"])
        return BreakRecord(**{**data, "kind": "gave up"}, skipped=[function])
    skipped = [SkippedRecord(**item) for item in data.get("skipped", ())]
    return BreakRecord(**{**data, "skipped": skipped})


def _recompile(data: dict[str, Any]) -> RecompileRecord:
    guards = [GuardRecord(**item) for item in data.get("guards", ())]
    return RecompileRecord(**{**data, "guards": guards})


def _ops(data: dict[str, Any]) -> OpsRecord:
    eager = [EagerOpRecord(**item) for item in data["eager"]]
    missing = [MissingRecord(**item) for item in data["missing"]]
    device = data.get("device")
    if device is not None:
        kernels = [DeviceKernelRecord(**item) for item in device["kernels"]]
        device = DeviceRecord(**{**device, "kernels": kernels})
    return OpsRecord(**{**data, "eager": eager, "missing": missing, "device": device})


def read_report(path: Path) -> Report:
    """The report in a file; raises `ReportError` with the path in its one line."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ReportError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ReportError(f"{path}: not a report of instrumented-backend: not text") from None
    try:
        return Report.from_json(text)
    except ReportError as error:
        raise ReportError(f"{path}: {error}") from None


def find_reports(folder: Path) -> list[Path]:
    """The reports that programs left in a folder, by rank and process; raises `ReportError`."""
    try:
        names = os.listdir(folder)
    except OSError as error:
        raise ReportError(f"{folder}: cannot be read: {error.strerror}") from None
    found = [match for name in names if (match := _REPORT_NAME.fullmatch(name))]
    found.sort(key=lambda match: [int(number) for number in match.groups()])
    return [folder / match.string for match in found]
