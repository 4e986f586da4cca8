"""What is shown as a table, as CSV or as JSON, and how each of these is written."""

import csv
import io
import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Protocol

from instrumented_backend.records.escapes import shown_lines

Cell = str | int | float | None
_FORMULAS = ("=", "+", "-", "@", "\t", "\r")  # what a cell begins with that a spreadsheet runs
TableRow = dict[str, Cell]  # its columns by name; what is unknown is None


class Place(str):
    """``"train.py:12"``: a cell as files have it, with the parts that a view shortens or links."""

    file: str
    line: int | None

    @classmethod
    def of(cls, file: str | None, line: int | None) -> "Place | None":
        if file is None:
            return None
        place = cls(file if line is None else f"{file}:{line}")
        place.file, place.line = file, line
        return place


class View(Protocol):
    """What a command shows."""

    def text(self, width: int) -> str:
        """For a terminal of that many columns."""
        ...

    def rows(self) -> Sequence[Mapping[str, object]]:
        """For CSV."""
        ...

    def json(self) -> str: ...


def render_view(
    view: View, layout: str, width: int | None = None, *, quote_formulas: bool = False
) -> str:
    """``layout`` is "table", "csv" or "json"; without ``width``, a table fits the terminal.

    ``quote_formulas`` is for CSV: text that a spreadsheet would run starts with an apostrophe.
    """
    if layout == "json":
        return view.json()
    if layout == "csv":
        rows = view.rows()
        return to_csv([_without_formulas(row) for row in rows] if quote_formulas else rows)
    return shown_lines(view.text(terminal_width() if width is None else width))


def terminal_width() -> int:
    """80 columns where the output is not a terminal."""
    return shutil.get_terminal_size((80, 24)).columns


def _without_formulas(row: Mapping[str, object]) -> dict[str, object]:
    return {
        column: f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULAS) else cell
        for column, cell in row.items()
    }


def to_csv(rows: Sequence[Mapping[str, object]]) -> str:
    text = io.StringIO()
    write_csv(text, rows)
    return text.getvalue()


def write_csv(file: IO[str], rows: Sequence[Mapping[str, object]]) -> None:
    """The columns of all rows, in the order of the first to have them; without rows, nothing."""
    columns: dict[str, None] = {}
    for row in rows:
        if not row.keys() <= columns.keys():
            columns.update(dict.fromkeys(row))
    if columns:
        # csv quotes what the end of a line has, and Python before 3.13 nothing else: a cell may
        # hold a "\r".
        writer = csv.writer(_EndingInNewline(file), lineterminator="\r\n")
        writer.writerow(columns)
        writer.writerows(map(row.get, columns) for row in rows)


class _EndingInNewline:
    """What `csv` writes a row to."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, row: str) -> None:
        self._file.write(row[: -len("\r\n")] + "\n")


def to_json(document: object) -> str:
    return json.dumps(document, indent=1)


def to_json_lines(records: Iterable[object]) -> str:
    """A list, each of its items on a line of its own."""
    lines = ",\n".join(map(json.dumps, records))
    return f"[\n{lines}\n]" if lines else "[]"
