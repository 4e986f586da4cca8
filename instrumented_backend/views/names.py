"""What graphs and compilations are called.

In tables, by the module that was compiled, where a graph's function says little.
"""

from collections import Counter

from instrumented_backend.compare.functions import base, resumed_at
from instrumented_backend.records import CompiledRecord, Compiling, Report
from instrumented_backend.views.words import short_path

SourceLine = tuple[str | None, int | None]


class Names:
    """``Model.blocks.3.forward`` for ``forward``; for a module of torch's own, ``Model.blocks.3``.

    Its function is one for all modules of the class, so the place is that of ``torch.compile``.
    """

    def __init__(self, report: Report) -> None:
        self._compiled = {record.compiled: record for record in report.compiled}
        self._graphs = {graph.graph: graph.compiled for graph in report.graphs}
        self._same = Counter(_label(record) for record in report.compiled)

    def of_graph(self, graph: int | None, function: str | None) -> str | None:
        return self.function(self._graphs.get(graph), function)

    def function(self, compiled: int | None, function: str | None) -> str | None:
        record = self._compiled.get(-1 if compiled is None else compiled)
        if record is None or record.path is None:
            return function
        name = record.name
        if self._same[_label(record)] > 1:
            name += f" #{record.compiled}"
        if function == record.target:
            return name
        return f"{name}.forward" if function == "forward" else function

    def place(
        self, compiled: int | None, function: str | None, file: str | None, line: int | None
    ) -> SourceLine:
        record = self._compiled.get(-1 if compiled is None else compiled)
        if record is None or record.path is None or function != record.target:
            return file, line
        return record.file, record.line


def _label(record: CompiledRecord) -> tuple[str, str | None, int | None]:
    return record.name, record.file, record.line


def compilation(record: Compiling) -> str:
    """``"forward (train.py:39)"``, ``"the backward of the rest of forward (train.py:41)"``"""
    of = "the backward of " if record.direction == "backward" else ""
    return of + named(record.function, record.file, record.line)


def why(record: Compiling) -> str | None:
    """``"size of x in dimension 1: 64 → 48, used at model.py:88"``"""
    if record.why is None or record.guard_file is None:
        return record.why
    return f"{record.why}, used at {short_path(record.guard_file, record.guard_line)}"


def named(function: str | None, file: str | None, line: int | None, path: str = "") -> str:
    """A function with its place; of the module ``path``, which ends in a dot."""
    if function is None:
        return f"a function ({short_path(file, line)})"
    name, at = f"{path}{base(function)}", resumed_at(function)
    if at is not None:  # after a graph break
        return f"the rest of {name} ({short_path(file, at)})"
    return f"{name} ({short_path(file, line)})"
