"""Facts that only the code generator had, kept beside Inductor's cache in a file for each graph.

The generated code and its cache key stay as they are: the file is under the graph's own hash.
"""

import json
from pathlib import Path
from typing import Any

from instrumented_backend.records import KernelRecord
from instrumented_backend.whole_file import write_whole

FOLDER = "instrumented"  # in Inductor's cache
VERSION = 1
MAX_CHARACTERS = 500_000

Facts = dict[str, Any]  # of one kernel: total_bytes, aten_ops, fx_nodes, source_lines


def sidecar_path(module_path: str) -> Path:
    """``CACHE/ab/cab….py`` → ``CACHE/instrumented/ab/cab….json``."""
    path = Path(module_path)
    return path.parent.parent / FOLDER / path.parent.name / f"{path.stem}.json"


def write_sidecar(module_path: str, kernels: dict[str, Facts]) -> None:
    """Whole or not at all, whoever else writes it, and bounded. Raises OSError."""
    text = json.dumps({"version": VERSION, "kernels": kernels})
    if len(text) > MAX_CHARACTERS:
        return
    write_whole(sidecar_path(module_path), text)


def read_sidecar(module_path: str) -> dict[str, Facts]:
    """The facts by kernel; empty where nobody wrote any, or the file is of no use."""
    try:
        data = json.loads(sidecar_path(module_path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    kernels = data.get("kernels") if isinstance(data, dict) else None
    if not isinstance(kernels, dict) or data["version"] != VERSION:
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
