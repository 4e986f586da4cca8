"""Names of functions, the same in every run: without line numbers, which an edit moves."""

import os

from instrumented_backend.records import GraphRecord, Report
from instrumented_backend.records.functions import original, resumed

_TORCHS_OWN = os.path.join("-packages", "torch", "")


def base(function: str | None) -> str:
    """``"f"`` for ``"torch_dynamo_resume_in_f_at_14"``, what Dynamo calls the rest of ``f``."""
    return original(function or "?")


def resumed_at(function: str | None) -> int | None:
    """The line after whose break the function goes on."""
    return resumed(function or "")[1]


def is_resumed(function: str | None) -> bool:
    return resumed_at(function) is not None


def file_name(file: str | None) -> str:
    """A file by its name: the same in another folder or installation."""
    return os.path.basename(file) if file else "?"


class Labels:
    """``Model.blocks.3.forward`` for ``forward``, where the module that was compiled is known."""

    def __init__(self, report: Report) -> None:
        self._paths = {record.compiled: record.path for record in report.compiled}
        self._calls = {record.compiled: (record.file, record.line) for record in report.compiled}

    def of(self, compiled: int | None, function: str | None) -> str:
        name = base(function)
        path = None if compiled is None else self._paths.get(compiled)
        return f"{path}.{name}" if path and name == "forward" else name

    def of_graph(self, graph: GraphRecord) -> str:
        return self.of(graph.compiled, graph.function)

    def place_of(self, graph: GraphRecord) -> tuple[str | None, int | None]:
        """Its function's; of a function of torch's own, such as a Sequential's, the user's call."""
        call = (None, None) if graph.compiled is None else self._calls.get(graph.compiled)
        if call is not None and call[0] is not None and _TORCHS_OWN in (graph.file or ""):
            return call
        return graph.file, graph.line


def program_of(report: Report) -> str:
    """The script's name: ``"train.py"``."""
    return report.run.program or ""
