"""Where a kernel comes from: the comments that Inductor writes above definitions and calls."""

from dataclasses import dataclass, field

_NODES = "Source Nodes: ["
_ATEN = "], Original ATen: ["
_FILE = "# File: "


@dataclass
class Provenance:
    """The FX nodes and the ATen ops that were fused, and the user's lines where they are given."""

    fx_nodes: list[str] = field(default_factory=list)
    aten_ops: list[str] = field(default_factory=list)
    source_lines: list[str] = field(default_factory=list)
    kernel_path: str | None = None


def read_comment(line: str) -> Provenance | None:
    """``# Topologically Sorted Source Nodes: [a, b], Original ATen: [aten.add]``; else None.

    Also ``# kernel path: ...`` and ``# File: /path/model.py:12 in forward, code: ...``.
    """
    if _NODES in line:
        nodes, separator, ops = line.partition(_NODES)[2].partition(_ATEN)
        if not separator:
            return None
        return Provenance(fx_nodes=_names(nodes), aten_ops=_names(ops.rstrip().removesuffix("]")))
    if line.startswith("# kernel path: "):
        return Provenance(kernel_path=line.removeprefix("# kernel path: ").strip())
    if line.startswith(_FILE):
        place = line.removeprefix(_FILE).partition(" in ")[0].partition(", code:")[0]
        return Provenance(source_lines=[place.strip()])
    return None


def read_comments_above(lines: list[str], line_number: int) -> Provenance:
    """All that the comment lines right above a line (counted from 1) say."""
    found = Provenance()
    for line in reversed(lines[: line_number - 1]):
        if not line.startswith("#"):
            break
        said = read_comment(line)
        if said is not None:
            found.fx_nodes = said.fx_nodes or found.fx_nodes
            found.aten_ops = said.aten_ops or found.aten_ops
            found.source_lines = [*said.source_lines, *found.source_lines]
            found.kernel_path = said.kernel_path or found.kernel_path
    return found


def _names(text: str) -> list[str]:
    return [name for name in (part.strip() for part in text.split(",")) if name]
