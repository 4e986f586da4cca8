"""What tables call a graph: by the module that was compiled, where its function says little."""

from collections import Counter

from instrumented_backend.records import CompiledRecord, Report

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
