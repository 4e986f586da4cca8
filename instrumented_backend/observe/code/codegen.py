"""What only the code generator knows of a kernel: collected while a cold run compiles."""

import threading
from collections.abc import Iterable
from typing import Any

from instrumented_backend.kernels.sidecar import (
    GeneratorFacts,
    Sidecar,
    has_sidecar,
    write_sidecar,
)
from instrumented_backend.observe.code.node_lines import NodeLines, line_of_stack, lines_of_nodes
from instrumented_backend.observe.failures import Failures
from instrumented_backend.records import notes
from instrumented_backend.torch_compat import inductor

MAX_ITEMS = 100  # of ops, nodes or lines of one kernel
MAX_LINES = 10  # of one op in it


class CodegenFacts:
    """Collects the facts of the kernels that each thread generates, and files them by graph."""

    def __init__(self, failures: Failures) -> None:
        self._failures = failures
        self._pending = threading.local()

    def defined(self, name: str, nodes: Any, kernel: Any) -> None:
        """Inductor has generated a kernel."""
        if not hasattr(self._pending, "kernels"):
            self._pending.kernels = {}
        facts: GeneratorFacts = self._pending.kernels.setdefault(name, _origins(nodes))
        if kernel is not None:
            facts.total_bytes = inductor.kernel_bytes(kernel)

    def given(self, gm: Any) -> None:
        """Inductor gets this graph to compile: its nodes have names that Dynamo's have not."""
        self._pending.lines = lines_of_nodes(gm.graph.nodes)

    def file(self, path: str, names: Iterable[str], nodes: NodeLines | None) -> None:
        """Keep what was collected on this thread for the graph whose module is ``path``."""
        pending: dict[str, GeneratorFacts] = getattr(self._pending, "kernels", {})
        lines: dict[str, str] = getattr(self._pending, "lines", {})
        self._pending.kernels, self._pending.lines = {}, {}
        facts = {name: pending[name] for name in names if name in pending}
        if not facts and (not lines or has_sidecar(path)):
            return  # loaded from a cache
        try:
            write_sidecar(path, Sidecar(facts, None if nodes is None else nodes.kept(lines)))
        except OSError as error:
            self._failures.note(
                notes.ORIGINS_NOT_KEPT, f"warm runs will not know the kernels' origins: {error}"
            )


def _origins(nodes: Any) -> GeneratorFacts:
    aten_ops: dict[str, None] = {}
    fx_nodes: dict[str, None] = {}
    source_lines: dict[str, int] = {}
    op_lines: dict[str, dict[int, None]] = {}
    for aten, fx_node, stack in inductor.kernel_origins(nodes):
        if aten is not None:
            aten_ops.setdefault(aten)
        fx_nodes.setdefault(fx_node)
        line = line_of_stack(stack)
        if line is not None:
            number = source_lines.setdefault(line, len(source_lines))
            if aten is not None and number < MAX_ITEMS:
                op_lines.setdefault(aten, {}).setdefault(number)
    return GeneratorFacts(
        aten_ops=list(aten_ops)[:MAX_ITEMS],
        fx_nodes=list(fx_nodes)[:MAX_ITEMS],
        source_lines=list(source_lines)[:MAX_ITEMS],
        op_lines={op: list(op_lines[op])[:MAX_LINES] for op in list(op_lines)[:MAX_ITEMS]},
    )
