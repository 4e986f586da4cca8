"""Cells of a notebook: a report names them by their number, ``In [3]``, as the reader sees them."""

import dataclasses
import sys
from typing import Any

from instrumented_backend.records import Report
from instrumented_backend.records.places import place

_FILES = frozenset({"file", "called_file", "reason_file"})


def is_kernel() -> bool:
    """Is this a notebook's process, of which nobody sees what it prints at its end?"""
    return getattr(_shell(), "kernel", None) is not None


def _shell() -> Any:
    """IPython's, if the program runs in one."""
    ipython = sys.modules.get("IPython")
    return None if ipython is None else ipython.get_ipython()


def cell_of(shell: Any, file: str) -> str | None:
    """``"In [3]"`` for the file name that IPython made up for that cell; None for other files."""
    compile_ = getattr(shell, "compile", None)
    named = getattr(compile_, "format_code_name", lambda file: None)(file)
    if not named or len(named) != 2 or named[0] != "Cell":
        return None
    return str(named[1]).replace("In[", "In [")


def name_cells(report: Report) -> None:
    """Put cells' numbers in the place of their file names, all over the report."""
    shell = _shell()
    if shell is None:
        return
    names: dict[str, str] = {}

    def named(file: str) -> str:
        if file not in names:
            names[file] = cell_of(shell, file) or file
        return names[file]

    for one in report.files:
        if named(one.file) != one.file:
            one.text_in = one.file

    def places(lines: list[str]) -> list[str]:
        return [
            named(file) if line is None else f"{named(file)}:{line}"
            for file, line in map(place, lines)
        ]

    for kernel in report.kernels:
        kernel.source_lines = places(kernel.source_lines)
        kernel.op_lines = {op: places(lines) for op, lines in kernel.op_lines.items()}
    _rename(report, named)


def _rename(value: Any, named: Any) -> None:
    """The files in records, and in the lists of them."""
    if isinstance(value, list):
        for item in value:
            _rename(item, named)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            found = getattr(value, field.name)
            if field.name in _FILES and isinstance(found, str):
                setattr(value, field.name, named(found))
            elif isinstance(found, list) or dataclasses.is_dataclass(found):
                _rename(found, named)
