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
    op_lines: dict[str, list[str]] = field(default_factory=dict)  # by op of ``aten_ops``
    anchors: dict[str, Anchor] = field(default_factory=dict)


@dataclass
class _Packed:
    """Of one kernel, as it is written: lines by their numbers in `_Module`."""

    total_bytes: int | None
    aten_ops: list[str]
    fx_nodes: list[str]
    source_lines: list[int]
    op_lines: list[list[int]]  # in the order of ``aten_ops``


@dataclass
class _Module:
    """A whole side file. Kernels share their lines, whose paths may be long."""

    kernels: dict[str, _Packed]
    lines: list[str]
    anchors: dict[str, Anchor]  # by the line's number, which JSON has as text


def write_sidecar(module_path: str, kernels: dict[str, GeneratorFacts]) -> None:
    """Raises OSError."""
    numbers: dict[str, int] = {}
    anchors: dict[str, Anchor] = {}
    packed = {}
    for name, facts in kernels.items():
        known = {*facts.source_lines, *(line for each in facts.op_lines.values() for line in each)}
        for line in sorted(known):
            number = numbers.setdefault(line, len(numbers))
            if line in facts.anchors:
                anchors[str(number)] = facts.anchors[line]
        packed[name] = _Packed(
            facts.total_bytes,
            facts.aten_ops,
            facts.fx_nodes,
            [numbers[line] for line in facts.source_lines],
            [[numbers[line] for line in facts.op_lines.get(op, ())] for op in facts.aten_ops],
        )
    module = asdict(_Module(packed, list(numbers), anchors))
    side_files.save(side_files.side_file(module_path, _KIND), module)


def read_sidecar(module_path: str) -> dict[str, GeneratorFacts]:
    """The facts by kernel; empty where nobody wrote any, or the file is of no use."""
    data = side_files.load(side_files.side_file(module_path, _KIND))
    if data is None:
        return {}
    # Here, because it brings msgspec along.
    from instrumented_backend.records.decoding import convert

    try:
        if not isinstance(data, dict) or "kernels" not in data:
            return convert(data, dict[str, GeneratorFacts])  # an earlier release's
        module = convert(data, _Module)
        return {name: _unpacked(facts, module) for name, facts in module.kernels.items()}
    except (ReportError, IndexError):
        return {}


def _unpacked(packed: _Packed, module: _Module) -> GeneratorFacts:
    def lines(numbers: list[int]) -> list[str]:
        return [module.lines[number] for number in numbers]

    by_op = zip(packed.aten_ops, map(lines, packed.op_lines), strict=False)
    numbers = {number for each in (packed.source_lines, *packed.op_lines) for number in each}
    return GeneratorFacts(
        packed.total_bytes,
        packed.aten_ops,
        packed.fx_nodes,
        lines(packed.source_lines),
        {op: places for op, places in by_op if places},
        {
            module.lines[number]: module.anchors[str(number)]
            for number in sorted(numbers)
            if str(number) in module.anchors
        },
    )
