"""Builds and loads the op meter's native part, once per torch version and user.

A small C++ file of ours, compiled with the machine's own compiler into a cache folder. It has a
plain C interface, so that neither pybind11 nor Python's headers are needed.
"""

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from filelock import FileLock, Timeout

from instrumented_backend import torch_compat

SOURCE = Path(__file__).with_name("_op_meter.cpp")
BUILD_TIMEOUT_S = 120
_COMPILERS = ("g++", "c++", "clang++")


class NativeError(RuntimeError):
    """The native part cannot be built or loaded; the message is one line."""


class Row(ctypes.Structure):
    """Ops of one name in one gap: the first of each pass, or the second, ..."""

    _fields_: ClassVar = [
        ("name", ctypes.c_char_p),
        ("gap", ctypes.c_int64),
        ("ordinal", ctypes.c_int64),
        ("count", ctypes.c_int64),
        ("ns", ctypes.c_int64),
    ]


class Sums(ctypes.Structure):
    """Of one gap: how often it was observed, sums and sums of squares for one observation."""

    _fields_: ClassVar = [
        (name, ctypes.c_double)
        for name in ("n", "ops", "ops2", "op_ns", "op_ns2", "region_ns", "region_ns2")
    ]


class Work(ctypes.Structure):
    """What the windows cost: events, the ops and autograd nodes among them, samples of lines."""

    _fields_: ClassVar = [(name, ctypes.c_uint64) for name in ("events", "ops", "nodes", "samples")]


Sampler = ctypes.CFUNCTYPE(
    None, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_double
)


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


def load(folder: Path | None = None) -> ctypes.PyDLL:
    """The library, built if the cache has no intact one; raises `NativeError`.

    Takes seconds where it has to be built. Several processes may call it at once.
    """
    name = f"op_meter-{_key()}"
    try:
        folder = folder or cache_folder()
        with _locked(folder, name):
            library = folder / f"{name}.so"
            if not _is_intact(library):
                _build(library)
            return _open(library)
    except (OSError, Timeout):
        # A cache that cannot be written or locked: built for this process alone.
        with tempfile.TemporaryDirectory(prefix="instrumented_backend-") as private:
            library = Path(private) / f"{name}.so"
            try:
                _build(library)
            except OSError as error:
                raise NativeError(f"no folder to build it in: {error}") from None
            return _open(library)


@contextmanager
def _locked(folder: Path, name: str) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with FileLock(folder / f"{name}.lock", timeout=BUILD_TIMEOUT_S):
        yield


def _key() -> str:
    """Changes with whatever the library depends on."""
    facts = (SOURCE.read_bytes(), torch_compat.build_id().encode(), os.uname().machine.encode())
    return hashlib.sha256(b"\0".join(facts)).hexdigest()[:16]


def _digest_file(library: Path) -> Path:
    return library.with_suffix(".sha256")


def _is_intact(library: Path) -> bool:
    """Loading half a library would kill the process, so its digest is kept beside it."""
    try:
        expected = _digest_file(library).read_text()
        return hashlib.sha256(library.read_bytes()).hexdigest() == expected
    except (FileNotFoundError, UnicodeDecodeError):
        return False


def _build(library: Path) -> None:
    part = library.with_suffix(f".{os.getpid()}.part")
    try:
        _compile(part)
        digest = hashlib.sha256(part.read_bytes()).hexdigest()
        os.replace(part, library)
        _digest_file(library).write_text(digest)
    finally:
        part.unlink(missing_ok=True)


def _compile(output: Path) -> None:
    compiler = os.environ.get("CXX") or next(filter(shutil.which, _COMPILERS), None)
    if compiler is None:
        raise NativeError(
            f"no C++ compiler found ({', '.join(_COMPILERS)}); install one, or set CXX"
        )
    command = [
        *compiler.split(),
        *("-O2", "-std=c++20", "-fPIC", "-shared", "-DNDEBUG"),
        *torch_compat.compile_flags(),
        *(str(SOURCE), "-o", str(output)),
        *torch_compat.link_flags(),
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


def _open(library: Path) -> ctypes.PyDLL:
    """PyDLL: the calls are shorter than giving the interpreter lock away and taking it again."""
    try:
        lib = ctypes.PyDLL(str(library))
    except OSError as error:
        raise NativeError(f"cannot be loaded: {error}") from None
    int64, uint64 = ctypes.c_int64, ctypes.c_uint64
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "op_meter_open": (None, []),
        "op_meter_close": (None, []),
        "op_meter_enter": (None, []),
        "op_meter_leave": (None, [int64]),
        "op_meter_quiet": (None, [ctypes.c_int32]),
        "op_meter_sample": (None, [Sampler, ctypes.c_double]),
        "op_meter_work": (None, [ctypes.POINTER(Work)]),
        "op_meter_clear": (None, []),
        "op_meter_rows": (int64, [ctypes.POINTER(Row), int64]),
        "op_meter_gaps": (int64, [ctypes.POINTER(Sums), int64]),
        "op_meter_lost": (int64, []),
        "op_meter_after_fork": (None, []),
        "op_count_begin": (uint64, []),
        "op_count_take": (int64, []),
        "op_count_end": (None, [uint64]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib
