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
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from filelock import FileLock, Timeout

from instrumented_backend.torch_compat import machine

BUILD_TIMEOUT_S = 120
_COMPILERS = ("g++", "c++", "clang++")


class NativeError(RuntimeError):
    """The native part cannot be built or loaded; the message is one line."""


_SETS = 2  # certain, random: in which windows something was seen


def _fields(kind: Any, *names: str) -> list[tuple[str, Any]]:
    return [(name, kind) for name in names]


class MarkRow(ctypes.Structure):
    """Where gaps begin: after which direction's call, and which event since."""

    _fields_: ClassVar = _fields(ctypes.c_int64, "mark", "graph", "event", "in_data")


class Population(ctypes.Structure):
    """How many gaps there were and how long they took: on the main thread, on others."""

    _fields_: ClassVar = [("n", ctypes.c_int64 * 2), ("ns", ctypes.c_int64 * 2)]


class Seen(ctypes.Structure):
    """What windows saw of one kind of gap: sums, and sums of squares over the windows.

    ``n`` is of gaps, or of seconds where gaps are seen in slices.
    """

    _fields_: ClassVar = _fields(
        ctypes.c_double,
        *("n", "ns", "ops", "op_ns"),
        *("windows", "n2", "ops2", "ops_n", "op_ns2", "op_ns_n"),
    )


class KindRow(ctypes.Structure):
    """Gaps from one mark to another, whose nanoseconds are of one octave."""

    _fields_: ClassVar = [
        *_fields(ctypes.c_int64, "kind", "edge", "mark", "to", "octave"),
        ("population", Population),
        ("whole", Seen * _SETS),
        ("slices", Seen * _SETS),
        ("first", Seen),
    ]


class CellRow(ctypes.Structure):
    """Ops of one name in one kind of gap: the first of each gap, or the second, ..."""

    _fields_: ClassVar = [
        *_fields(ctypes.c_int64, "kind", "edge", "part", "mark", "slot", "ordinal"),
        ("name", ctypes.c_char_p),
        *_fields(ctypes.c_int64, "count", "ns"),
    ]


class SampleRow(ctypes.Structure):
    """Samples of such ops that were taken on one line."""

    _fields_: ClassVar = [
        *_fields(ctypes.c_int64, "kind", "edge", "part", "mark", "slot", "line"),
        *_fields(ctypes.c_double, "weight", "weighted_ns"),
    ]


class RegionRow(ctypes.Structure):
    """All calls of one direction; ``nested`` are those inside another region."""

    _fields_: ClassVar = _fields(ctypes.c_int64, "calls", "nested", "ns", "longest_ns")


class TimeRow(ctypes.Structure):
    """What threads' time went to, gaps apart; how long windows were open; ops not booked."""

    _fields_: ClassVar = [
        *_fields(ctypes.c_int64, "main_captured_ns", "main_compile_ns"),
        *_fields(ctypes.c_int64, "other_captured_ns", "other_compile_ns"),
        ("open_ns", ctypes.c_double * _SETS),
        ("lost", ctypes.c_int64),
    ]


class Work(ctypes.Structure):
    """What the windows cost: events, the ops among them, samples of lines, and their time.

    ``op_ns`` is what ops took us, events apart, ``sample_ns`` the CPU time of samples;
    ``silences``, how often a thread's events were switched off for the rest of an op or region;
    ``open_ns``, how long windows were open.
    ``marks`` have passed so far; ``novel`` had when a kind of gap was new, ``first`` when the
    window opened.
    """

    _fields_: ClassVar = _fields(
        ctypes.c_uint64,
        *("events", "ops", "op_ns", "samples", "sample_ns", "silences", "open_ns"),
        *("marks", "novel", "first"),
    )


class GateState(ctypes.Structure):
    """What a native graph call looks at: who watches calls, and how a region begins and ends."""

    UNWATCHED, WATCHED, METERED = range(3)  # the last: by the op meter alone, natively
    _fields_: ClassVar = [
        ("state", ctypes.c_int64),
        ("enter", ctypes.c_void_p),
        ("leave", ctypes.c_void_p),
    ]


Sampler = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_char_p)


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/instrumented_backend``, or ``~/.cache/instrumented_backend``.

    Raises OSError where nobody knows a home folder.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # relative ones are to be ignored, by the XDG specification
        base = os.path.join(os.path.expanduser("~"), ".cache")
    if not os.path.isabs(base):
        raise FileNotFoundError(f"no home folder: {base}")
    return Path(base) / "instrumented_backend"


@dataclass(frozen=True)
class _Part:
    """One source with how it is built, what else it depends on, and how it is loaded."""

    source: Path
    flags: Callable[[], list[str]]
    link_flags: Callable[[], list[str]]
    depends_on: Callable[[], str]
    open: Callable[[Path], Any]

    @property
    def key(self) -> str:
        """Changes with whatever the library depends on."""
        facts = (self.source.read_bytes(), self.depends_on().encode(), os.uname().machine.encode())
        return hashlib.sha256(b"\0".join(facts)).hexdigest()[:16]


def load(folder: Path | None = None) -> ctypes.PyDLL:
    """The op meter's library; raises `NativeError`.

    Takes seconds where it has to be built. Several processes may call it at once.
    """
    library: ctypes.PyDLL = _load(_OP_METER, folder)
    return library


def load_graph_call(folder: Path | None = None) -> Any:
    """Has ``GraphCall``, what a program calls in a graph's place; raises `NativeError`."""
    return _load(_GRAPH_CALL, folder)


def load_kernel_timer(folder: Path | None = None) -> Any:
    """Has ``Timer(function)``, a callable with ``calls``, ``timed``, ``ticks``; and ``now()``.

    Raises `NativeError`.
    """
    return _load(_KERNEL_TIMER, folder)


def _load(part: _Part, folder: Path | None) -> Any:
    """Built if the cache has no intact one."""
    name = f"{part.source.stem.lstrip('_')}-{part.key}"
    try:
        folder = folder or cache_folder()
        with _locked(folder, name):
            library = folder / f"{name}.so"
            if not _is_intact(library):
                _build(part, library)
            return part.open(library)
    except (OSError, Timeout):
        # A cache that cannot be written or locked: built for this process alone.
        with tempfile.TemporaryDirectory(prefix="instrumented_backend-") as private:
            library = Path(private) / f"{name}.so"
            try:
                _build(part, library)
            except OSError as error:
                raise NativeError(f"no folder to build it in: {error}") from None
            return part.open(library)


@contextmanager
def _locked(folder: Path, name: str) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with FileLock(folder / f"{name}.lock", timeout=BUILD_TIMEOUT_S):
        yield


def _digest_file(library: Path) -> Path:
    return library.with_suffix(".sha256")


def _is_intact(library: Path) -> bool:
    """Loading half a library would kill the process, so its digest is kept beside it."""
    try:
        expected = _digest_file(library).read_text()
        return hashlib.sha256(library.read_bytes()).hexdigest() == expected
    except (FileNotFoundError, UnicodeDecodeError):
        return False


def _build(part: _Part, library: Path) -> None:
    unfinished = library.with_suffix(f".{os.getpid()}.part")
    try:
        _compile(part, unfinished)
        digest = hashlib.sha256(unfinished.read_bytes()).hexdigest()
        os.replace(unfinished, library)
        _digest_file(library).write_text(digest)
    finally:
        unfinished.unlink(missing_ok=True)


def _compile(part: _Part, output: Path) -> None:
    compiler = os.environ.get("CXX") or next(filter(shutil.which, _COMPILERS), None)
    if compiler is None:
        raise NativeError(
            f"no C++ compiler found ({', '.join(_COMPILERS)}); install one, or set CXX"
        )
    command = [
        *compiler.split(),
        *("-O2", "-std=c++20", "-fPIC", "-shared", "-DNDEBUG"),
        *part.flags(),
        *(str(part.source), "-o", str(output)),
        *part.link_flags(),
    ]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=BUILD_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is the program's, not the compiler's
        )
    except OSError as error:
        raise NativeError(f"the compiler {compiler!r} cannot be run: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise NativeError(f"{compiler} took more than {BUILD_TIMEOUT_S} s") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line.lower()]
        why = (lines or done.stderr.splitlines() or ["no message"])[0].strip()
        raise NativeError(f"{compiler} failed with exit code {done.returncode}: {why[:200]}")


def _open_op_meter(library: Path) -> ctypes.PyDLL:
    """PyDLL: the calls are shorter than giving the interpreter lock away and taking it again."""
    try:
        lib = ctypes.PyDLL(str(library))
        waiting = ctypes.CDLL(str(library))
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
        "op_meter_leave": (None, [int64]),
        "op_meter_quiet": (None, [int32, int32, int64]),
        "op_meter_collected": (None, [int64]),
        "op_meter_sample": (None, [Sampler, int32]),
        "op_meter_work": (None, [ctypes.POINTER(Work)]),
        "op_meter_clear": (None, []),
        "op_meter_settle": (None, []),
        **{
            f"op_meter_{plural}": (int64, [ctypes.POINTER(row), int64])
            for plural, row in (
                ("marks", MarkRow),
                ("kinds", KindRow),
                ("cells", CellRow),
                ("samples", SampleRow),
                ("regions", RegionRow),
            )
        },
        "op_meter_times": (None, [ctypes.POINTER(TimeRow)]),
        "op_meter_event": (ctypes.c_char_p, [int64]),
        "op_meter_size": (int64, [ctypes.c_char_p]),
        "op_meter_after_fork": (None, []),
        "op_count_begin": (uint64, []),
        "op_count_take": (int64, []),
        "op_count_end": (None, [uint64]),
    }
    waits: dict[str, tuple[Any, list[Any]]] = {
        "op_meter_finish": (None, [uint64, int64, uint64]),
        "op_meter_wait": (None, [int64, uint64]),
        "op_meter_window": (None, [int64, int64, int64, uint64]),
    }
    for name, (result, arguments) in {**signatures, **waits}.items():
        function = getattr(waiting if name in waits else lib, name)
        function.restype, function.argtypes = result, arguments
        setattr(lib, name, function)
    for struct in (MarkRow, KindRow, CellRow, SampleRow, RegionRow, TimeRow, Work):
        _check_size(struct, lib.op_meter_size(struct.__name__.encode()), library)
    return lib


def _check_size(struct: type[ctypes.Structure], size: int, library: Path) -> None:
    """Reading one that differs would give wrong figures, or kill the process."""
    own = ctypes.sizeof(struct)
    if size != own:
        raise NativeError(
            f"{struct.__name__} has {size} bytes in {library.name}, and {own} in Python"
        )


def _open_graph_call(library: Path) -> Any:
    module = _open_extension(library)
    _check_size(GateState, module.gate_size, library)
    return module


def _open_extension(library: Path) -> Any:
    name = "_" + library.stem.partition("-")[0]
    loader = importlib.machinery.ExtensionFileLoader(name, str(library))
    spec = importlib.util.spec_from_loader(name, loader)
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
