"""The tables of the page: those of the text, with figures that sort and sums below them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from instrumented_backend.records import Report
from instrumented_backend.views.grid import MAX_COLUMNS
from instrumented_backend.views.output import Cell, TableRow
from instrumented_backend.views.tables import TABLES, Table
from instrumented_backend.views.text import cell_text, header_text, is_figure, shown_columns
from instrumented_backend.views.words import function

MAX_ROWS = 5_000


@dataclass
class ShownCell:
    """``value`` is what it sorts by, in full; ``link`` an anchor of the page."""

    text: str
    value: Cell = None
    link: str | None = None


@dataclass
class ShownTable:
    """``figures`` are the columns of numbers; ``sums`` stand below the columns that have one."""

    name: str
    title: str
    columns: list[str]
    headers: list[str]
    figures: list[bool]
    rows: list[list[ShownCell]]
    ids: list[str | None] = field(default_factory=list)  # of each row: None has no anchor
    sums: list[ShownCell | None] = field(default_factory=list)
    left_out: int = 0


# Columns that add up over all rows.
_SUMMED = {
    "graphs": {"calls", "backward_calls", "time_us", "compile_s", "kernels"},
    "missing": {"count", "time_us", "op_time_pct"},
    "ledger": set(),
    "kernels": {"device_time_total_us"},
    "compile": {"total_s"},
}

Link = Callable[[str, TableRow, str], str | None]


def shown_table(report: Report, name: str, link: Link) -> ShownTable | None:
    """None where there are no rows.

    ``link(table, row, column)`` is the anchor that a cell leads to; with no column, the row's own.
    """
    table = TABLES[name]
    found = table.rows(report)
    if not found:
        return None
    rows = list(found[:MAX_ROWS])
    texts = [
        {key: cell_text(table, row, key) for key in row if key not in table.only_in_files}
        for row in rows
    ]
    columns = shown_columns(texts)[:MAX_COLUMNS]
    return ShownTable(
        name=name,
        title=table.title,
        columns=columns,
        headers=[header_text(table, column) for column in columns],
        figures=[all(is_figure(row.get(column)) for row in rows) for column in columns],
        rows=[
            [
                ShownCell(_words(column, text), row.get(column), link(name, row, column))
                for column in columns
            ]
            for row, text in zip(rows, texts, strict=True)
        ],
        ids=[link(name, row, "") for row in rows],
        sums=_sums(table, columns, rows) if len(rows) == len(found) else [],
        left_out=len(found) - len(rows),
    )


def _words(column: str, texts: dict[str, str]) -> str:
    text = texts.get(column, "")
    return function(text) if column == "function" else text


def _sums(table: Table, columns: list[str], rows: Sequence[TableRow]) -> list[ShownCell | None]:
    summed = _SUMMED.get(table.name, set())
    sums: list[ShownCell | None] = []
    for column in columns:
        values = [row.get(column) for row in rows]
        known = [value for value in values if isinstance(value, int | float)]
        if column not in summed or not known:
            sums.append(None)
            continue
        whole = all(isinstance(value, int) for value in known)
        total = sum(known) if whole else math.fsum(known)
        sums.append(ShownCell(cell_text(table, {column: total}, column), total))
    return sums if any(sums) else []
