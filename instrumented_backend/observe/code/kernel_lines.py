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
        kernel.op_lines = {
            op: places
            for op, lines in kernel.op_lines.items()
            if (places := list(dict.fromkeys(p for line in lines for p in own.get(line, ()))))
        }
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
    """Of the last node: what a call reads is named before what it computes.

    In a backward, nodes have names of Inductor's graph, unless they are computed again; without its
    names the op's line is unknown, and one before it is of what it reads. In a forward, they are
    named as Dynamo named them, and the last one that it knows is the op.
    """
    inductors: dict[str, int] = {} if kept is None else kept.named
    if kernel.direction == "backward":
        last = kernel.fx_nodes[-1:]
        found = [place for name in last for place in _own_of(inductors.get(name), kept, own)]
        return found or [by_name[name] for name in last if name in by_name]
    for name in reversed(kernel.fx_nodes):
        found = [by_name[name]] if name in by_name else _own_of(inductors.get(name), kept, own)
        if found:
            return found
    return []


def _own_of(number: int | None, kept: GraphLines | None, own: dict[str, list[str]]) -> list[str]:
    if kept is None or number is None or not 0 <= number < len(kept.places):
        return []
    return own.get(kept.places[number], [])
