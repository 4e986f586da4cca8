"""Names of functions, the same in every run: without line numbers, which an edit moves."""

import os

from instrumented_backend.records import GraphRecord, Report
from instrumented_backend.records.escapes import line_number

_RESUMED, _AT = "torch_dynamo_resume_in_", "_at_"


def base(function: str | None) -> str:
    """``"f"`` for ``"torch_dynamo_resume_in_f_at_14"``, what Dynamo calls the rest of ``f``."""
    name = function or "?"
    # By positions: a name may be resumed as often as its length allows.
    start, end = 0, len(name)
    while name.startswith(_RESUMED, start, end):
        at = name.rfind(_AT, start + len(_RESUMED) + 1, end)
        if at < 0 or line_number(name[at + len(_AT) : end]) is None:
            break
        start, end = start + len(_RESUMED), at
    return name[start:end]


def resumed_at(function: str | None) -> int | None:
    """The line after whose break the function goes on."""
    name = function or ""
    inside, separator, line = name.removeprefix(_RESUMED).rpartition(_AT)
    is_resumed = name.startswith(_RESUMED) and inside and separator
    return line_number(line) if is_resumed else None


def is_resumed(function: str | None) -> bool:
    return resumed_at(function) is not None


def file_name(file: str | None) -> str:
    """A file by its name: the same in another folder or installation."""
    return os.path.basename(file) if file else "?"


class Labels:
    """``Model.blocks.3.forward`` for ``forward``, where the module that was compiled is known."""

    def __init__(self, report: Report) -> None:
        self._paths = {record.compiled: record.path for record in report.compiled}

    def of(self, compiled: int | None, function: str | None) -> str:
        name = base(function)
        path = None if compiled is None else self._paths.get(compiled)
        return f"{path}.{name}" if path and name == "forward" else name

    def of_graph(self, graph: GraphRecord) -> str:
        return self.of(graph.compiled, graph.function)


def program_of(report: Report) -> str:
    """The script's name: of ``"/home/me/train.py --epochs 1"``, ``"train.py"``."""
    return os.path.basename((report.run.command or "").partition(" ")[0])
