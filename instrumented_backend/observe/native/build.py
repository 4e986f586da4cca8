"""Builds and loads our native parts, once per torch version and user.

Small C++ files of ours, compiled with the machine's own compiler into a cache folder. The op meter
has a plain C interface, so that neither pybind11 nor Python's headers are needed; graph calls and
the timers of C++ kernels are Python types, and need the headers, as Inductor's C++ kernels do.
"""

import ctypes
import hashlib
import importlib.machinery
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from instrumented_backend.observe.native import cache
from instrumented_backend.observe.native.compiler import NativeError as NativeError
from instrumented_backend.observe.native.compiler import compile_shared
from instrumented_backend.torch_compat import machine

# For another process's build, and then for our own: five times what it takes on two slow cores.
# Nobody waits that long for it: whoever needs the library waits `PATIENCE_S`, and goes on without.
LIMIT_S = 60.0
PATIENCE_S = 20.0

_SETS = 2  # certain, random: in which windows something was seen


def _fields(kind: Any, *names: str) -> list[tuple[str, Any]]:
    return [(name, kind) for name in names]


class MarkRow(ctypes.Structure):
    """Where gaps begin: after which direction's call, and which event since."""

    _fields_: ClassVar = _fields(ctypes.c_int64, "mark", "graph", "event", "in_data")


class Population(ctypes.Structure):
    """How many gaps there were and how long they took: on the main thread, on others.

    ``cost_ns`` is how much of it, on all threads, went into seeing ops.
    """

    _fields_: ClassVar = [
        ("n", ctypes.c_int64 * 2),
        ("ns", ctypes.c_int64 * 2),
        ("cost_ns", ctypes.c_int64),
    ]


class Seen(ctypes.Structure):
    """What windows saw of one kind of gap: sums, and sums of squares over the windows.

    ``n`` is of gaps, or of seconds where gaps are seen in slices. ``each_ops2`` and
    ``each_op_ns2`` are sums of squares over the gaps; those of ``apart`` half of the squares of by
    how much each window differs from the one before, of all ``pairs`` of such. Each gap is in the
    sums as often as it weighs, which is 1 on average; ``weight``: as often as that in a sum with
    others, where 1 is the mean of chance's windows. 0 where gaps weigh nothing else than 1.
    """

    _SUMS: ClassVar = ("ns", "ops", "op_ns", "each_ops2", "each_op_ns2")
    _BY_N: ClassVar = ("n2", "ops2", "ops_n", "op_ns2", "op_ns_n")
    _BY_NS: ClassVar = ("ns2", "op_ns_ns")
    _APART: ClassVar = tuple(map("apart_{}".format, _BY_N))
    _SQUARES: ClassVar = (*_BY_N, *_BY_NS, *_APART)
    _fields_: ClassVar = _fields(
        ctypes.c_double,
        *("n", "ns", "ops", "op_ns", "windows", *_BY_N, *_BY_NS),
        *("each_ops2", "each_op_ns2", "pairs", *_APART),
        "weight",
    )

    def add(self, other: "Seen") -> None:
        """What both saw, each of whose gaps counts as often as it weighs."""
        weights = self.n * self.weighs + other.n * other.weighs
        weight = weights / (self.n + other.n) if weights else 1.0
        own, others = self.weighs / weight, other.weighs / weight
        for name in (*self._SUMS, *self._SQUARES):
            power = 2 if name in self._SQUARES else 1
            both = own**power * getattr(self, name) + others**power * getattr(other, name)
            setattr(self, name, both)
        self.n += other.n
        self.windows += other.windows
        self.pairs += other.pairs
        self.weight = weight

    def times_in(self, both: "Seen") -> float:
        """How often each of its ops counts in a sum with others, which saw ``both``."""
        return float(self.weighs / both.weighs) if self.n else 1.0

    @property
    def weighs(self) -> float:
        return self.weight or 1.0


class KindRow(ctypes.Structure):
    """Gaps from one mark to another, whose nanoseconds are of one octave."""

    _fields_: ClassVar = [
        *_fields(ctypes.c_int64, "kind", "edge", "mark", "to", "octave"),
        ("population", Population),
        ("whole", Seen * _SETS),
        ("slices", Seen * _SETS),
        ("first", Seen),
        ("looked", Seen),
        ("met", Seen),
        ("ended", Seen),
        ("by_chance", Seen),
    ]


class StageRow(ctypes.Structure):
    """What windows saw of all gaps of a kind while these had gone on for so long, and no longer.

    Each gap is as a window.
    """

    _fields_: ClassVar = [
        ("kind", ctypes.c_int64),
        *_fields(ctypes.c_double, "from_ns", "until_ns"),
        ("seen", Seen),
    ]


class CellRow(ctypes.Structure):
    """Ops of one name in one kind of gap: the first of each gap, or the second, ..."""

    _fields_: ClassVar = [
        *_fields(ctypes.c_int64, "kind", "edge", "part", "mark", "slot", "ordinal"),
        ("name", ctypes.c_char_p),
        *_fields(ctypes.c_double, "count", "ns"),
    ]


class SampleRow(ctypes.Structure):
    """Samples of such ops that were taken on one line; each stands for as many as its weight."""

    _fields_: ClassVar = [
        *_fields(ctypes.c_int64, "kind", "edge", "part", "mark", "slot", "line"),
        *_fields(ctypes.c_double, "weight", "weighted_ns", "weight2"),
    ]


class RegionRow(ctypes.Structure):
    """All calls of one direction; ``nested`` are those inside another region."""

    _fields_: ClassVar = _fields(ctypes.c_int64, "calls", "nested", "ns", "longest_ns")


class TimeRow(ctypes.Structure):
    """What threads' time went to, gaps apart; ops not booked.

    ``loose`` is what windows saw of threads without marks: its time is how long they were open.
    """

    _fields_: ClassVar = [
        *_fields(ctypes.c_int64, "main_captured_ns", "main_compile_ns"),
        *_fields(ctypes.c_int64, "other_captured_ns", "other_compile_ns"),
        ("lost", ctypes.c_int64),
        ("loose", Seen * _SETS),
    ]


class Work(ctypes.Structure):
    """What the windows cost: events, the ops among them, samples of lines, and their time.

    ``op_ns`` is what ops took beyond ``EVENT_S`` an event, ``sample_ns`` the time of samples;
    ``silences``, how often a thread's events were switched off for the rest of an op or region;
    ``open_ns``, how long windows were open.
    ``marks`` have passed so far; ``novel`` had when a kind of gap was new, ``first`` when the
    program's loop began to be looked for. ``unlike_ns``: of all that windows cost, what those did
    that were opened for gaps unlike the others.
    """

    _fields_: ClassVar = _fields(
        ctypes.c_int64,
        *("events", "ops", "op_ns", "samples", "sample_ns", "silences", "open_ns"),
        *("marks", "novel", "first", "unlike_ns"),
    )


class GpuFunctions(ctypes.Structure):
    """CUDA's runtime, and PyTorch's own C interface, as the native part calls them."""

    NAMES: ClassVar = {
        "current_stream": "aoti_torch_get_current_cuda_stream",
        "create_guard": "aoti_torch_create_cuda_guard",
        "delete_guard": "aoti_torch_delete_cuda_guard",
        "current_device": "cudaGetDevice",
        "is_capturing": "cudaStreamIsCapturing",
        "exchange_capture_mode": "cudaThreadExchangeStreamCaptureMode",
        "create": "cudaEventCreate",
        "record": "cudaEventRecord",
        "elapsed_ms": "cudaEventElapsedTime",
        "last_error": "cudaGetLastError",
    }
    _fields_: ClassVar = _fields(ctypes.c_void_p, *NAMES)


class GpuTimeRow(ctypes.Structure):
    """What windows saw of one GPU's time, in nanoseconds, by set.

    ``at_once`` is of the time in which every call under way was timed, and none was its graph's
    first: ``n`` of all calls, ``ops`` with those at once, on several streams or threads, counted
    once, and ``op_ns`` how much longer that is than where the same share is at once as on the host.
    ``seen_ns`` is between events, ``behind_ns`` of it while the GPU was behind the host; ``gap_ns``
    between calls, ``idle_ns`` of it before the host's first op. At the ``ends`` of calls the GPU
    was ``late_ns`` behind the host, in all. Calls and ops at whose begin and end it was behind took
    it ``work_ns``, and the host ``asking_ns``.

    ``more_ns`` is of the whole run: what calls took on the host, beyond the time in which any was
    under way.
    """

    _fields_: ClassVar = [
        ("device", ctypes.c_int64),
        ("at_once", Seen * _SETS),
        *_fields(
            ctypes.c_double * _SETS,
            *("seen_ns", "behind_ns", "gap_ns", "idle_ns"),
            *("ends", "late_ns", "work_ns", "asking_ns"),
        ),
        ("more_ns", ctypes.c_double),
    ]


class GpuCallRow(ctypes.Structure):
    """One direction's time on the GPU: ``op_ns`` of ``n`` calls, by set.

    ``ops`` is how much longer that is than the host's time in these calls, ``host_ns``.
    ``first_ns`` is of the first call, if a certain window saw it; negative otherwise.
    """

    _fields_: ClassVar = [
        *_fields(ctypes.c_int64, "key", "device"),
        ("first_ns", ctypes.c_double),
        ("seen", Seen * _SETS),
        ("host_ns", ctypes.c_double * _SETS),
        ("first_host_ns", ctypes.c_double),
    ]


class GpuOpRow(ctypes.Structure):
    """Ops of one cell that the GPU has timed; mark -1 is of threads without marks."""

    _fields_: ClassVar = [
        *_fields(ctypes.c_int64, "mark", "slot"),
        ("name", ctypes.c_char_p),
        *_fields(ctypes.c_double, "n", "ns"),
    ]


class GateState(ctypes.Structure):
    """What a native graph call looks at: who watches calls, and how a region begins and ends."""

    UNWATCHED, WATCHED, METERED = range(3)  # the last: by the op meter alone, natively
    _fields_: ClassVar = [
        ("state", ctypes.c_int64),
        ("enter", ctypes.c_void_p),
        ("leave", ctypes.c_void_p),
    ]


Sampler = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_char_p)


@dataclass(frozen=True)
class _Part:
    """One source with how it is built, what else it depends on, and how it is loaded."""

    source: Path
    flags: Callable[[], list[str]]
    link_flags: Callable[[], list[str]]
    depends_on: Callable[[], str]
    open: Callable[[str, str], Any]  # its path, its name
    headers: Sequence[Path] = ()

    @property
    def key(self) -> str:
        """Changes with whatever the library depends on."""
        facts = [self.depends_on().encode(), os.uname().machine.encode()]
        facts += [source.read_bytes() for source in (self.source, *self.headers)]
        return hashlib.sha256(b"\0".join(facts)).hexdigest()[:16]


def _unheard(remark: str) -> None:
    pass


def load(folder: Path | None = None, remark: Callable[[str], None] = _unheard) -> ctypes.PyDLL:
    """The op meter's library; raises `NativeError`.

    Takes seconds where it has to be built. Several processes may call it at once. ``remark`` gets
    the reason where it is built for this process alone.
    """
    library: ctypes.PyDLL = _load(_OP_METER, folder, remark)
    return library


def load_graph_call(folder: Path | None = None, remark: Callable[[str], None] = _unheard) -> Any:
    """Has ``GraphCall``, what a program calls in a graph's place; raises `NativeError`."""
    return _load(_GRAPH_CALL, folder, remark)


def load_kernel_timer(folder: Path | None = None, remark: Callable[[str], None] = _unheard) -> Any:
    """Has ``Timer(function)``, a callable with ``calls``, ``timed``, ``ticks``; and ``now()``.

    The program waits for this one. Raises `NativeError`.
    """
    return _load(_KERNEL_TIMER, folder, remark, PATIENCE_S / 2)


def _load(
    part: _Part, folder: Path | None, remark: Callable[[str], None], limit_s: float = LIMIT_S
) -> Any:
    name = f"{part.source.stem.lstrip('_')}-{part.key}"

    def build(output: Path) -> None:
        compile_shared(part.source, output, part.flags(), part.link_flags(), limit_s)

    def open_(path: str) -> Any:
        return part.open(path, name)

    return cache.load(name, build, open_, folder, remark, limit_s)


def _open_op_meter(path: str, name: str) -> ctypes.PyDLL:
    """PyDLL: the calls are shorter than giving the interpreter lock away and taking it again."""
    try:
        lib = ctypes.PyDLL(path)
        waiting = ctypes.CDLL(path)
    except OSError as error:
        raise NativeError(f"cannot be loaded: {error}") from None
    int32, int64, uint64 = ctypes.c_int32, ctypes.c_int64, ctypes.c_uint64
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "op_meter_begin": (None, [int64, int64]),
        "op_meter_open": (None, [int32]),
        "op_meter_close": (None, []),
        "op_meter_end": (uint64, []),
        "op_meter_awake": (uint64, []),
        "op_meter_wake": (None, []),
        "op_meter_enter": (None, [int64]),
        "op_meter_exit": (None, []),
        "op_meter_leave": (None, [int64]),
        "op_meter_quiet": (None, [int32, int32, int64]),
        "op_meter_collected": (None, [int64]),
        "op_meter_sample": (None, [Sampler, int32]),
        "op_meter_current_backward": (None, [ctypes.py_object]),
        "op_meter_passed": (None, [ctypes.py_object]),
        "op_meter_line": (None, [ctypes.py_object, int32, int64]),
        "op_meter_backward_line": (None, [int64, int64]),
        "op_meter_work": (None, [ctypes.POINTER(Work)]),
        "op_meter_clear": (None, []),
        "op_meter_settle": (None, [int64]),
        "op_meter_gpu": (None, [int64, int32, ctypes.POINTER(GpuFunctions)]),
        "op_meter_gpu_settle": (None, []),
        "op_meter_gpu_forget": (None, []),
        "op_meter_gpu_error": (int32, []),
        **{
            f"op_meter_{plural}": (int64, [ctypes.POINTER(row), int64])
            for plural, row in (
                ("marks", MarkRow),
                ("kinds", KindRow),
                ("stages", StageRow),
                ("cells", CellRow),
                ("loose_cells", CellRow),
                ("samples", SampleRow),
                ("regions", RegionRow),
                ("gpu_times", GpuTimeRow),
                ("gpu_calls", GpuCallRow),
                ("gpu_ops", GpuOpRow),
            )
        },
        "op_meter_times": (None, [ctypes.POINTER(TimeRow)]),
        "op_meter_event": (ctypes.c_char_p, [int64]),
        "op_meter_size": (int64, [ctypes.c_char_p]),
        "op_meter_after_fork": (None, []),
        "op_count_is_alone": (int32, []),
        "op_count_begin": (uint64, []),
        "op_count_take": (int64, []),
        "op_count_end": (None, [uint64]),
    }
    waits: dict[str, tuple[Any, list[Any]]] = {
        "op_meter_finish": (None, [uint64, int64, uint64]),
        "op_meter_wait": (None, [int64, uint64]),
        "op_meter_window": (None, [int64, int64, int64, int64, int64, int64, uint64]),
    }
    for symbol, (result, arguments) in {**signatures, **waits}.items():
        function = getattr(waiting if symbol in waits else lib, symbol)
        function.restype, function.argtypes = result, arguments
        setattr(lib, symbol, function)
    rows = (MarkRow, KindRow, StageRow, CellRow, SampleRow, RegionRow, TimeRow)
    for struct in (*rows, Work, GpuFunctions, GpuTimeRow, GpuCallRow, GpuOpRow):
        _check_size(struct, lib.op_meter_size(struct.__name__.encode()), name)
    return lib


def _check_size(struct: type[ctypes.Structure], size: int, library: str) -> None:
    """Reading one that differs would give wrong figures, or kill the process."""
    own = ctypes.sizeof(struct)
    if size != own:
        raise NativeError(f"{struct.__name__} has {size} bytes in {library}, and {own} in Python")


def _open_graph_call(path: str, name: str) -> Any:
    module = _open_extension(path, name)
    _check_size(GateState, module.gate_size, name)
    return module


def _open_extension(path: str, name: str) -> Any:
    module = "_" + name.partition("-")[0]
    loader = importlib.machinery.ExtensionFileLoader(module, path)
    spec = importlib.util.spec_from_loader(module, loader)
    assert spec is not None
    try:
        return importlib.util.module_from_spec(spec)
    except ImportError as error:
        raise NativeError(f"cannot be loaded: {error}") from None


_OP_METER = _Part(
    source=Path(__file__).with_name("_op_meter.cpp"),
    flags=machine.compile_flags,
    link_flags=machine.link_flags,
    depends_on=machine.build_id,
    open=_open_op_meter,
    headers=sorted(Path(__file__).parent.glob("_op_*.h")),
)
_GRAPH_CALL, _KERNEL_TIMER = (
    _Part(
        source=Path(__file__).with_name(source),
        flags=lambda: [f"-I{sysconfig.get_paths()['include']}"],
        link_flags=list,
        depends_on=lambda: sys.version,
        open=open_,
    )
    for source, open_ in (
        ("_graph_call.cpp", _open_graph_call),
        ("_kernel_timer.cpp", _open_extension),
    )
)
