"""Facts of kernels that only the code generator had, from their graph's side file."""

from typing import Any

from instrumented_backend import side_files
from instrumented_backend.records import KernelRecord

Facts = dict[str, Any]  # of one kernel: total_bytes, aten_ops, fx_nodes, source_lines
_KIND = "kernels"


def write_sidecar(module_path: str, kernels: dict[str, Facts]) -> None:
    """Raises OSError."""
    side_files.save(side_files.side_file(module_path, _KIND), kernels)


def read_sidecar(module_path: str) -> dict[str, Facts]:
    """The facts by kernel; empty where nobody wrote any, or the file is of no use."""
    kernels = side_files.load(side_files.side_file(module_path, _KIND))
    if not isinstance(kernels, dict):
        return {}
    return {name: facts for name, facts in kernels.items() if isinstance(facts, dict)}


def add_sidecar(kernels: list[KernelRecord], module_path: str) -> None:
    """Complete the records of a graph's module."""
    known = read_sidecar(module_path)
    for kernel in kernels:
        if kernel.kernel_name in known:
            _add(kernel, known[kernel.kernel_name])


def _add(record: KernelRecord, facts: Facts) -> None:
    record.aten_ops = record.aten_ops or facts.get("aten_ops", [])
    record.fx_nodes = record.fx_nodes or facts.get("fx_nodes", [])
    record.source_lines = record.source_lines or facts.get("source_lines", [])
    total = facts.get("total_bytes")
    if isinstance(total, int) and record.bytes_source != "inductor":
        record.notes = [note for note in record.notes if not note.startswith("bytes")]
        if record.total_bytes != total:
            record.notes.append(
                "read and written bytes unknown: Inductor's figure is their sum, and the shapes "
                f"at the call add up to {record.total_bytes} bytes"
            )
            record.read_bytes = record.written_bytes = None
        record.total_bytes, record.bytes_source = total, "inductor"
