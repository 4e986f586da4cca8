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
from typing import Any

from instrumented_backend.observe.native import cache, structs
from instrumented_backend.observe.native.compiler import NativeError as NativeError
from instrumented_backend.observe.native.compiler import compile_shared
from instrumented_backend.torch_compat import machine

# For another process's build, and then for our own: five times what it takes on two slow cores.
# Nobody waits that long for it: whoever needs the library waits `PATIENCE_S`, and goes on without.
LIMIT_S = 60.0
PATIENCE_S = 20.0


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
    pointer = ctypes.c_void_p
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
        "op_meter_sample": (None, [structs.Sampler, int32]),
        "op_meter_current_backward": (None, [ctypes.py_object]),
        "op_meter_passed": (None, [ctypes.py_object]),
        "op_meter_line": (None, [ctypes.py_object, int32, int64]),
        "op_meter_backward_line": (None, [int64, int64]),
        "op_meter_work": (None, [ctypes.POINTER(structs.Work)]),
        "op_meter_count_calls": (int32, [pointer, pointer]),
        "op_meter_uncount_calls": (None, []),
        "op_meter_clear": (None, []),
        "op_meter_settle": (None, [int64]),
        "op_meter_gpu": (None, [int64, int32, ctypes.POINTER(structs.GpuFunctions)]),
        "op_meter_gpu_settle": (None, []),
        "op_meter_gpu_forget": (None, []),
        "op_meter_gpu_error": (int32, []),
        **{
            f"op_meter_{plural}": (int64, [ctypes.POINTER(row), int64])
            for plural, row in (
                ("marks", structs.MarkRow),
                ("kinds", structs.KindRow),
                ("stages", structs.StageRow),
                ("cells", structs.CellRow),
                ("loose_cells", structs.CellRow),
                ("samples", structs.SampleRow),
                ("functions", structs.FunctionRow),
                ("callers", structs.CallerRow),
                ("regions", structs.RegionRow),
                ("gpu_times", structs.GpuTimeRow),
                ("gpu_calls", structs.GpuCallRow),
                ("gpu_ops", structs.GpuOpRow),
            )
        },
        "op_meter_times": (None, [ctypes.POINTER(structs.TimeRow)]),
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
    for struct in structs.OF_OP_METER:
        _check_size(struct, lib.op_meter_size(struct.__name__.encode()), name)
    return lib


def _check_size(struct: type[ctypes.Structure], size: int, library: str) -> None:
    """Reading one that differs would give wrong figures, or kill the process."""
    own = ctypes.sizeof(struct)
    if size != own:
        raise NativeError(f"{struct.__name__} has {size} bytes in {library}, and {own} in Python")


def _open_graph_call(path: str, name: str) -> Any:
    module = _open_extension(path, name)
    _check_size(structs.GateState, module.gate_size, name)
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
