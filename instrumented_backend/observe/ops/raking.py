"""Two-way tables of which single cells are known less well than the sums."""

from collections import defaultdict
from collections.abc import Hashable, Mapping
from typing import TypeVar

Row = TypeVar("Row", bound=Hashable)
Column = TypeVar("Column", bound=Hashable)
TURNS = 20
CLOSE = 1e-6


def raked(
    table: Mapping[Row, Mapping[Column, float]], totals: Mapping[Column, float]
) -> dict[Row, dict[Column, float]]:
    """The table with its rows' sums, and columns that are to each other as ``totals``.

    Iterative proportional fitting. What is 0 remains so: where that leaves no such columns, the
    sums of the rows hold. No row is 0; columns without a total are as they are.
    """
    sums = {row: sum(cells.values()) for row, cells in table.items()}
    known = sum(cells.get(column, 0.0) for cells in table.values() for column in totals)
    scale = known / sum(totals.values()) if totals else 1.0
    found = {row: dict(cells) for row, cells in table.items()}
    for _ in range(TURNS):
        columns: defaultdict[Column, float] = defaultdict(float)
        for cells in found.values():
            for column, value in cells.items():
                columns[column] += value
        factors = {
            column: scale * totals[column] / value
            for column, value in columns.items()
            if value and column in totals
        }
        if all(abs(factor - 1.0) < CLOSE for factor in factors.values()):
            break
        for row, cells in found.items():
            scaled = {column: value * factors.get(column, 1.0) for column, value in cells.items()}
            all_of_row = sum(scaled.values())
            found[row] = {
                column: value * sums[row] / all_of_row for column, value in scaled.items()
            }
    return found
