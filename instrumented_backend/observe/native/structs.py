"""What the native parts write into, and are given: the same structures as in their C++."""

import ctypes
from typing import Any, ClassVar

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


class MethodDef(ctypes.Structure):
    """What Python knows of a function in C: its ``PyMethodDef``, of the stable ABI."""

    _fields_: ClassVar = [
        ("ml_name", ctypes.c_char_p),
        ("ml_meth", ctypes.c_void_p),
        ("ml_flags", ctypes.c_int),
        ("ml_doc", ctypes.c_char_p),
    ]


class FunctionRow(ctypes.Structure):
    """A function of PyTorch's: how often Python called it, and how many of these windows ``seen``.

    ``ops`` are those of each call that was seen, or ``differ``: they were not the same in all.
    """

    MAX_OPS: ClassVar = 8
    _fields_: ClassVar = [
        *_fields(ctypes.c_int64, "function", "calls", "seen", "differ"),
        ("name", ctypes.c_char_p),
        ("ops", ctypes.c_char_p * MAX_OPS),
    ]


class CallerRow(ctypes.Structure):
    """An op, and a function that ran it; -1: no function that Python has called."""

    _fields_: ClassVar = [("name", ctypes.c_char_p), ("function", ctypes.c_int64)]


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

# Those of `_op_meter.cpp`: each is as long here as there.
OF_OP_METER = (
    MarkRow,
    KindRow,
    StageRow,
    CellRow,
    SampleRow,
    FunctionRow,
    CallerRow,
    RegionRow,
    TimeRow,
    Work,
    GpuFunctions,
    GpuTimeRow,
    GpuCallRow,
    GpuOpRow,
)
