"""Generated modules on disk: a file, a folder, an Inductor cache."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from instrumented_backend.kernels.complete import add_sidecar
from instrumented_backend.kernels.graph_module import ParseError, refuse_endless
from instrumented_backend.kernels.parse import parse_module
from instrumented_backend.records import KernelRecord, bounded

MAX_FILE_BYTES = 16_000_000  # Inductor's largest modules have a few megabytes


class CodeFileError(ValueError):
    """A path cannot be read as generated code; the message is one line with the path in it."""


@dataclass
class CodeFiles:
    """The kernels of some files; ``skipped`` says why a file in a folder gave none."""

    kernels: list[KernelRecord] = field(default_factory=list)
    skipped: dict[Path, str] = field(default_factory=dict)


def find_files(paths: Iterable[Path]) -> list[tuple[Path, bool]]:
    """The files to read, each with whether it was named itself; of a folder, all ``*.py`` below.

    Raises `CodeFileError` for a path that is not there, or a folder with no such file.
    """
    files: dict[Path, bool] = {}
    for path in paths:
        # Not Path's own, which raise where a folder above may not be looked into.
        if os.path.isdir(path):
            found = sorted(_python_files(path))
            if not found:
                raise CodeFileError(f"{path}: no Python file in this folder or below it")
            for file in found:
                files.setdefault(file, False)
        else:
            _status(path)
            files[path] = True
    return list(files.items())


def _status(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise CodeFileError(f"{path}: no such file or folder") from None
    except OSError as error:
        raise CodeFileError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:  # no name that a file can have
        raise CodeFileError(f"{path}: cannot be read: {error}") from None


def _python_files(folder: Path) -> Iterator[Path]:
    for base, _, names in os.walk(folder):
        for name in names:
            if name.endswith(".py"):
                yield Path(base, name)


def read_files(files: Iterable[tuple[Path, bool]]) -> CodeFiles:
    """Read the files that `find_files` found.

    Raises `CodeFileError` for a file that was named and cannot be read; one that was only found
    in a folder is skipped.
    """
    found = CodeFiles()
    for path, named in files:
        try:
            found.kernels += read_file(path)
        except CodeFileError as error:
            if named:
                raise
            found.skipped[path] = str(error)
    found.kernels = list(_without_copies(found.kernels))
    return found


def read_file(path: Path) -> list[KernelRecord]:
    """The kernels of one module; raises `CodeFileError`."""
    size = _status(path).st_size
    if size > MAX_FILE_BYTES:
        raise CodeFileError(
            f"{path}: {size / 1e6:.0f} MB are too much for a generated module "
            f"(at most {MAX_FILE_BYTES / 1e6:.0f} MB are read)"
        )
    try:
        text = bounded.read_text(path, MAX_FILE_BYTES)
    except OSError as error:
        raise CodeFileError(f"{path}: cannot be read: {error.strerror}") from None
    except bounded.NotReadable as error:
        raise CodeFileError(f"{path}: {error}") from None
    if "\0" in text:
        raise CodeFileError(f"{path}: not text")
    try:
        refuse_endless(text)
        kernels = parse_module(text, str(path))
    except ParseError as error:
        raise CodeFileError(f"{path}: {error}") from None
    if any(kernel.path is not None for kernel in kernels):
        add_sidecar(kernels, str(path))
    return kernels


def _without_copies(kernels: list[KernelRecord]) -> Iterator[KernelRecord]:
    """A cache has a Triton kernel twice: in its graph's module, which says more, and in its own."""
    in_graphs = {
        os.path.basename(kernel.kernel_path)
        for kernel in kernels
        if kernel.path is not None and kernel.kernel_path is not None
    }
    for kernel in kernels:
        own_module = kernel.path is None and kernel.kernel_path is not None
        if not own_module or os.path.basename(kernel.kernel_path or "") not in in_graphs:
            yield kernel
