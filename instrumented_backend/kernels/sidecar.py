"""Facts of kernels that only the code generator had, from their graph's side file."""

from dataclasses import asdict, dataclass, field

from instrumented_backend.records import KernelRecord, ReportError, notes, side_files

_KIND = "kernels"


@dataclass
class Facts:
    """Of one kernel; the fields are those of `KernelRecord`."""

    total_bytes: int | None = None
    aten_ops: list[str] = field(default_factory=list)
    fx_nodes: list[str] = field(default_factory=list)
    source_lines: list[str] = field(default_factory=list)


def write_sidecar(module_path: str, kernels: dict[str, Facts]) -> None:
    """Raises OSError."""
    data = {name: asdict(facts) for name, facts in kernels.items()}
    side_files.save(side_files.side_file(module_path, _KIND), data)


def read_sidecar(module_path: str) -> dict[str, Facts]:
    """The facts by kernel; empty where nobody wrote any, or the file is of no use."""
    kernels = side_files.load(side_files.side_file(module_path, _KIND))
    if kernels is None:
        return {}
    # Here, because it brings msgspec along.
    from instrumented_backend.records.decoding import convert

    try:
        return convert(kernels, dict[str, Facts])
    except ReportError:
        return {}


def add_sidecar(kernels: list[KernelRecord], module_path: str) -> None:
    """Complete the records of a graph's module."""
    known = read_sidecar(module_path)
    for kernel in kernels:
        if kernel.kernel_name in known:
            _add(kernel, known[kernel.kernel_name])


def _add(record: KernelRecord, facts: Facts) -> None:
    record.aten_ops = record.aten_ops or facts.aten_ops
    record.fx_nodes = record.fx_nodes or facts.fx_nodes
    record.source_lines = record.source_lines or facts.source_lines
    total = facts.total_bytes
    if total is not None and record.bytes_source != "inductor":
        record.drop_notes(notes.ABOUT_BYTES)
        if record.total_bytes != total:
            record.add_note(
                notes.PARTS_UNKNOWN,
                "read and written bytes unknown: Inductor's figure is their sum, and the shapes "
                f"at the call add up to {record.total_bytes} bytes",
            )
            record.read_bytes = record.written_bytes = None
        record.total_bytes, record.bytes_source = total, "inductor"
