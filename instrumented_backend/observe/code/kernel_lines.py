"""The user's lines of kernels, whoever compiled them: this program, or one before it."""

from collections.abc import Iterable

from instrumented_backend.kernels.sidecar import GraphLines
from instrumented_backend.observe.code.node_lines import NodeLines
from instrumented_backend.records import KernelRecord


def add_own_lines(
    kernels: Iterable[KernelRecord], kept: GraphLines | None, nodes: NodeLines
) -> None:
    """Lines of this program in the place of those that were kept with the generated code.

    ``kept`` has the lines of the program that generated it, None where nobody kept them: then the
    nodes that a comment names tell.
    """
    by_name = nodes.by_name()
    own = nodes.own_places(kept) if kept is not None else {}
    for kernel in kernels:
        if kernel.source_lines and kept is not None:
            found = [place for line in kernel.source_lines for place in own.get(line, ())]
        elif kernel.language == "extern":
            found = _of_call(kernel, kept, own, by_name)
        else:
            found = [by_name[name] for name in kernel.fx_nodes if name in by_name]
        kernel.source_lines = list(dict.fromkeys(found))


def _of_call(
    kernel: KernelRecord,
    kept: GraphLines | None,
    own: dict[str, list[str]],
    by_name: dict[str, str],
) -> list[str]:
    """Of the last node that has a line: what a call reads is named before what it computes.

    In a backward, nodes have names of Inductor's graph, unless they are computed again: what both
    graphs have a node of is the backward's.
    """
    for name in reversed(kernel.fx_nodes):
        number = None if kept is None else kept.named.get(name)
        known = kept is not None and number is not None and 0 <= number < len(kept.places)
        inductors = own.get(kept.places[number], []) if known else []  # type: ignore[union-attr,index]
        dynamos = [by_name[name]] if name in by_name else []
        found = (inductors or dynamos) if kernel.direction == "backward" else (dynamos or inductors)
        if found:
            return found
    return []
