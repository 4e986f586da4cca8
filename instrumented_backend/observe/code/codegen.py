"""What only the code generator knows of a kernel: collected while a cold run compiles."""

import threading
from collections.abc import Iterable
from typing import Any

from instrumented_backend.kernels.sidecar import GeneratorFacts, write_sidecar
from instrumented_backend.observe.failures import Failures
from instrumented_backend.observe.graphs.node_lines import NodeLines
from instrumented_backend.observe.messages.reasons import frames, users_frame
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

    def file(self, path: str, names: Iterable[str], lines: NodeLines | None) -> None:
        """Keep what was collected on this thread for the graph whose module is ``path``."""
        pending: dict[str, GeneratorFacts] = getattr(self._pending, "kernels", {})
        self._pending.kernels = {}
        facts = {name: pending[name] for name in names if name in pending}
        if not facts:
            return  # loaded from a cache, or with no kernel of Inductor's
        anchors = lines.anchors() if lines is not None else {}
        for kernel in facts.values():
            kernel.anchors = {
                line: anchors[line] for line in kernel.source_lines if line in anchors
            }
        try:
            write_sidecar(path, facts)
        except OSError as error:
            self._failures.note(
                notes.ORIGINS_NOT_KEPT, f"warm runs will not know the kernels' origins: {error}"
            )


def _origins(nodes: Any) -> GeneratorFacts:
    aten_ops: dict[str, None] = {}
    fx_nodes: dict[str, None] = {}
    source_lines: dict[str, None] = {}
    op_lines: dict[str, dict[str, None]] = {}
    for aten, fx_node, stack in inductor.kernel_origins(nodes):
        if aten is not None:
            aten_ops.setdefault(aten)
        fx_nodes.setdefault(fx_node)
        line = users_line(stack)
        if line is not None:
            source_lines.setdefault(line)
            if aten is not None:
                op_lines.setdefault(aten, {}).setdefault(line)
    return GeneratorFacts(
        aten_ops=list(aten_ops)[:MAX_ITEMS],
        fx_nodes=list(fx_nodes)[:MAX_ITEMS],
        source_lines=list(source_lines)[:MAX_ITEMS],
        op_lines={op: list(op_lines[op])[:MAX_LINES] for op in list(op_lines)[:MAX_ITEMS]},
    )


def users_line(stack: str | None) -> str | None:
    """Of a formatted stack, ``/path/model.py:12``: the last frame that is not torch's."""
    frame = users_frame(frames(stack)) if stack else None
    return None if frame is None else f"{frame.file}:{frame.line}"
