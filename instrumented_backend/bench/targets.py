"""What there is to benchmark: modules in files, folders, Inductor caches and saved reports."""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from instrumented_backend.bench.generated import kind_of
from instrumented_backend.kernels.code_files import CodeFileError, find_files, read_file
from instrumented_backend.kernels.graph_module import ParseError
from instrumented_backend.records import KernelRecord, ReportError, find_reports, read_report

_DEVICE = re.compile(
    r"device='(cuda|xpu|mtia|mps)\b"
    r"|torch\.(cuda|xpu|mtia)\._DeviceGuard"
    r"|\bempty_strided_(cuda|xpu|mtia)\("
    r"|DeviceProperties\(type='(\w+)'"
)
_CPP_WRAPPER = "CppWrapperCodeCache"
_GRID_IN_GRAPH = frozenset({"template", "user_autotune", "fixed_config", "unknown"})


@dataclass
class Target:
    """One module, with what its text says about its kernels.

    ``error`` is why it can't be run. Each candidate that Inductor tuned a template with has a
    module: not to start a process for these is most of the time.
    """

    path: Path
    kind: str  # "graph" or "kernel"
    device: str
    kernels: list[KernelRecord]
    graph: int | None = None  # of a report
    direction: str | None = None
    error: str | None = None


@dataclass
class Targets:
    """``left_out`` says why a file of a folder, or a report's code, is not a target."""

    modules: list[Target] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)


def device_of(text: str) -> str:
    """The kind of device that a module computes on."""
    found = _DEVICE.search(text)
    if found is None:
        return "cpu"
    kind = next(group for group in found.groups() if group)
    return "cuda" if kind == "hip" else kind


def find_targets(paths: Iterable[Path]) -> Targets:
    """Raises `CodeFileError` for what is named and of no use."""
    targets = Targets()
    texts: dict[Path, str] = {}
    for path in paths:
        if path.suffix == ".json" and os.path.isfile(path):
            _add_report(targets, texts, path)
            continue
        if _add_folder_of_reports(targets, texts, path):
            continue
        for file, named in find_files([path]):
            try:
                _add(targets, texts, file)
            except CodeFileError as error:
                if named:
                    raise
                targets.left_out[str(file)] = str(error)
    targets.modules = _without_copies(targets, texts)
    return targets


def _add(
    targets: Targets,
    texts: dict[Path, str],
    path: Path,
    graph: int | None = None,
    direction: str | None = None,
) -> None:
    if any(known.path == path for known in targets.modules):
        return
    kernels = read_file(path)
    text = path.read_text(encoding="utf-8")
    if _CPP_WRAPPER in text:
        raise CodeFileError(f"{path}: its wrapper is C++ (cpp_wrapper), which cannot be followed")
    try:
        kind = kind_of(text)
    except ParseError as problem:
        raise CodeFileError(f"{path}: {problem}") from None
    for kernel in kernels:
        kernel.graph, kernel.direction = graph, direction
    texts[path] = text
    error = why_not_alone(kernels[0], text) if kind == "kernel" and kernels else None
    targets.modules.append(Target(path, kind, device_of(text), kernels, graph, direction, error))


def why_not_alone(record: KernelRecord, text: str) -> str | None:
    """Why a Triton kernel's own module does not say how to launch it; None where it does."""
    if record.kernel_category not in _GRID_IN_GRAPH or "\ndef get_args(" in text:
        return None
    return (
        f"a {record.kernel_category} kernel's module does not tell its grid: "
        "its graph's module does"
    )


def _add_folder_of_reports(targets: Targets, texts: dict[Path, str], folder: Path) -> bool:
    """Whether it was one."""
    try:
        reports = find_reports(folder) if os.path.isdir(folder) else []
    except ReportError as error:
        raise CodeFileError(str(error)) from None
    for report in reports:
        try:
            _add_report(targets, texts, report)
        except CodeFileError as error:
            targets.left_out[str(report)] = str(error)
    return bool(reports)


def _add_report(targets: Targets, texts: dict[Path, str], path: Path) -> None:
    """The modules of a report's graphs, where Inductor's cache still has them."""
    try:
        report = read_report(path)
    except ReportError as error:
        raise CodeFileError(str(error)) from None
    before = len(targets.modules)
    missing: list[str] = []
    for graph in report.graphs:
        for code in graph.code:
            if code.path is None:
                continue
            try:
                _add(targets, texts, Path(code.path), graph.graph, code.direction)
            except CodeFileError as error:
                missing.append(str(error))
                targets.left_out[code.path] = str(error)
    if len(targets.modules) == before:
        what = missing[0] if missing else "no graph in it has generated code"
        raise CodeFileError(f"{path}: none of its generated code is found again: {what}")


def _without_copies(targets: Targets, texts: dict[Path, str]) -> list[Target]:
    """A Triton kernel is in its graph's module, word for word, and in a module of its own."""
    graphs = "\n".join(texts[target.path] for target in targets.modules if target.kind == "graph")
    return [
        target
        for target in targets.modules
        if target.kind == "graph"
        or (target.path.name not in graphs and texts[target.path].strip() not in graphs)
    ]
