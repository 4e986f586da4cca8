"""GeneratorFacts of kernels that only the code generator had, from their graph's side file."""

from dataclasses import asdict, dataclass, field

from instrumented_backend.records import ReportError, side_files

_KIND = "origins"


@dataclass
class GeneratorFacts:
    """Of one kernel; the fields are those of `KernelRecord`."""

    total_bytes: int | None = None
    aten_ops: list[str] = field(default_factory=list)
    fx_nodes: list[str] = field(default_factory=list)
    source_lines: list[str] = field(default_factory=list)
    op_lines: dict[str, list[int]] = field(default_factory=dict)  # of each op, in `source_lines`


@dataclass
class GraphLines:
    """Lines of the program that the graph was captured from, when its code was generated."""

    kinds: str  # a digest of what its nodes call, in their order
    places: list[str]  # "/path/model.py:12"
    of_nodes: list[int]  # of each node that calls something its place in `places`, or -1
    named: dict[str, int]  # the same of the nodes of Inductor's graph, by name


@dataclass
class Sidecar:
    """What is kept beside a graph's module."""

    kernels: dict[str, GeneratorFacts] = field(default_factory=dict)
    lines: GraphLines | None = None


def write_sidecar(module_path: str, sidecar: Sidecar) -> None:
    """Without the lines, where there is no room for them. Raises OSError."""
    path = side_files.side_file(module_path, _KIND)
    if not side_files.save(path, asdict(sidecar)):
        side_files.save(path, asdict(Sidecar(sidecar.kernels)))


def has_sidecar(module_path: str) -> bool:
    return side_files.side_file(module_path, _KIND).exists()


def read_sidecar(module_path: str) -> Sidecar:
    """The facts by kernel; empty where nobody wrote any, or the file is of no use."""
    kept = side_files.load(side_files.side_file(module_path, _KIND))
    if kept is None:
        return Sidecar()
    # Here, because it brings msgspec along.
    from instrumented_backend.records.decoding import convert

    try:
        return convert(kept, Sidecar)
    except ReportError:
        return Sidecar()
