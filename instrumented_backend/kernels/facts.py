"""What the readers find out about a kernel: its own source, a launch, a run.

From these facts `complete` fills in the `KernelRecord`.
"""

from dataclasses import dataclass, field

from instrumented_backend.records import KernelRecord, Note

NUMELS = ("xnumel", "ynumel", "znumel", "rnumel", "r0_numel", "r1_numel")

DTYPE_BYTES = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "float8_e4m3fn": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
    "int16": 2,
    "uint16": 2,
    "float16": 2,
    "bfloat16": 2,
    "int32": 4,
    "uint32": 4,
    "float32": 4,
    "int64": 8,
    "uint64": 8,
    "float64": 8,
    "complex32": 4,
    "complex64": 8,
    "complex128": 16,
}


@dataclass
class Access:
    """How a kernel uses one pointer: each distinct index with the number of elements it reaches.

    Text is a number in symbols, None as many as the launch has points. Both are empty for a
    pointer that is only handed on to a helper function.
    """

    reads: dict[str, int | str | None] = field(default_factory=dict)
    writes: dict[str, int | str | None] = field(default_factory=dict)


@dataclass
class Part:
    """What one launch runs side by side with others: the whole kernel, or one loop of a combo's.

    ``numels`` are numbers, or the name of the parameter that holds one.
    """

    accesses: dict[str, Access] = field(default_factory=dict)
    numels: dict[str, int | str] = field(default_factory=dict)


@dataclass
class KernelFacts:
    """A kernel's record, as far as its source goes, and what the call sites are needed for."""

    record: KernelRecord
    parameters: list[str] = field(default_factory=list)  # those that a call passes, in order
    accesses: dict[str, Access] = field(default_factory=dict)  # by pointer, workspaces left out
    parts: list[Part] = field(default_factory=list)  # the same accesses, by the loop they are in
    constants: dict[str, int | str] = field(default_factory=dict)  # of a template: M, N, K, ...
    whole_buffers: bool = False  # the launch's points don't bound what one pointer reaches
    subkernels: list[str] = field(default_factory=list)  # of a multi-kernel


@dataclass
class BytesFacts:
    """Bytes that one launch reads and writes, estimated; None where they are unknown.

    The notes say how they were estimated, or why they are unknown.
    """

    read: int | None = None
    written: int | None = None
    notes: list[Note] = field(default_factory=list)


@dataclass
class LaunchFacts:
    """What one launch passes to a kernel, and what follows from it."""

    arg_shapes: dict[str, list[int | str]] = field(default_factory=dict)
    arg_dtypes: dict[str, str] = field(default_factory=dict)  # of an extern call
    symbolic_numels: dict[str, str] = field(default_factory=dict)
    note: Note | None = None  # on the call itself
    bytes: BytesFacts = field(default_factory=BytesFacts)
    flops: int | None = None
    flops_note: Note | None = None


@dataclass
class TimeFacts:
    """The time that a kernel took in the run itself; ``calls`` is None where it is unknown.

    ``kernels`` are those of a library that an extern call launched, with the µs of one call.
    """

    mean_us: float
    calls: int | None
    notes: list[Note] = field(default_factory=list)
    kernels: dict[str, float] = field(default_factory=dict)
