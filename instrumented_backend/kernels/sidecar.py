"""GeneratorFacts of kernels that only the code generator had, from their graph's side file."""

from dataclasses import asdict, dataclass, field

from instrumented_backend.records import ReportError, side_files

_KIND = "kernels"


@dataclass
class Anchor:
    """Where in the FX graph a line was met first: its file may be edited while caches stay warm."""

    node: str
    number: int  # among the nodes that have a line of the user's
    nodes: int  # of these, in the graph


@dataclass
class GeneratorFacts:
    """Of one kernel; the fields are those of `KernelRecord`, and ``anchors`` of its lines."""

    total_bytes: int | None = None
    aten_ops: list[str] = field(default_factory=list)
    fx_nodes: list[str] = field(default_factory=list)
    source_lines: list[str] = field(default_factory=list)
    op_lines: dict[str, list[str]] = field(default_factory=dict)
    anchors: dict[str, Anchor] = field(default_factory=dict)


def write_sidecar(module_path: str, kernels: dict[str, GeneratorFacts]) -> None:
    """Raises OSError."""
    data = {name: asdict(facts) for name, facts in kernels.items()}
    side_files.save(side_files.side_file(module_path, _KIND), data)


def read_sidecar(module_path: str) -> dict[str, GeneratorFacts]:
    """The facts by kernel; empty where nobody wrote any, or the file is of no use."""
    kernels = side_files.load(side_files.side_file(module_path, _KIND))
    if kernels is None:
        return {}
    # Here, because it brings msgspec along.
    from instrumented_backend.records.decoding import convert

    try:
        return convert(kernels, dict[str, GeneratorFacts])
    except ReportError:
        return {}
