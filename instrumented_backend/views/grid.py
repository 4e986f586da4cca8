"""Columns of text as a table that fits the terminal: one line a row, wherever that is possible.

What does not fit gives way in this order: names are shortened in the middle, then the columns that
matter least are left out, which a line below the table says.
"""

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from instrumented_backend.records.escapes import shown

ELLIPSIS = "…"
MAX_COLUMNS = 100  # that are thought of: a report may name as many as it likes
MAX_CELL = 10_000  # characters: more than a screen has
_GAP = 2
_NARROWEST = 16  # of a column with text
_NARROWEST_FIRST = 24  # what a row is about


@dataclass(frozen=True)
class Column:
    """``name`` is what the files call it; ``is_figure`` keeps its cells whole, to the right.

    ``is_one_line`` keeps the header and the cells from being wrapped: a cell that does not fit
    loses its end. That suits names in C++, which are sentences in length and start with what they
    are about.
    """

    name: str
    header: str
    cells: list[str]
    is_figure: bool
    is_one_line: bool = False

    @property
    def widest(self) -> int:
        words = [self.header] if self.is_one_line else self.header.split()
        return max(map(len, [*words, *self.cells]), default=0)


def draw(columns: Sequence[Column], width: int, least: Iterable[str] = ()) -> str:
    """``least`` names the columns that may be left out, in that order; after
    them the last columns are left out."""
    drawn, left_out = _choose(list(map(_escaped, columns[:MAX_COLUMNS])), width, least)
    widths = _fit(drawn, width)
    # Not before it is needed. torch imports it, too, where it is installed, when the process ends;
    # what that import does makes Python end with exit code 1 after Ctrl-C, instead of the signal.
    # An earlier import would change the code.
    from tabulate import tabulate

    headers = [
        textwrap.fill(column.header, room, break_long_words=False)
        for column, room in zip(drawn, widths, strict=True)
    ]
    fill = [cut if column.is_one_line else _fill for column in drawn]
    rows = zip(
        *(
            [fill_one(cell, room) for cell in column.cells]
            for column, room, fill_one in zip(drawn, widths, fill, strict=True)
        ),
        strict=True,
    )
    # The headers go in as a row: as headers, tabulate would pad each column by two.
    lines: str = tabulate(
        [headers, ["-" * room for room in widths], *rows],
        tablefmt="plain",
        disable_numparse=True,
        colalign=["right" if column.is_figure else "left" for column in drawn],
    )
    if not left_out and len(columns) <= MAX_COLUMNS:
        return lines
    names = ", ".join(column.header for column in left_out)
    if len(columns) > MAX_COLUMNS:
        names += f", and {len(columns) - MAX_COLUMNS:,} more"
    said = f"left out at this width: {names}; CSV and JSON have all"
    return "\n".join([lines, *textwrap.wrap(said, max(width, 40), subsequent_indent="  ")])


def _escaped(column: Column) -> Column:
    return replace(column, header=_one(column.header), cells=list(map(_one, column.cells)))


def _one(cell: str) -> str:
    return shown(shorten(cell, MAX_CELL))


def shorten(text: str, width: int) -> str:
    """Without its middle: ``triton_per_fused…view_5``; of a path, the file's name is kept."""
    if len(text) <= width:
        return text
    room = width - len(ELLIPSIS)
    tail = room // 3
    if "/" in text:
        tail = min(max(len(text.rpartition("/")[2]), tail), room)
    return text[: room - tail] + ELLIPSIS + (text[-tail:] if tail else "")


def cut(text: str, width: int) -> str:
    """Without its end: ``at::native::vectorized_elem...``"""
    return text if len(text) <= width else f"{text[: width - 3]}..."


def _choose(
    columns: list[Column], width: int, least: Iterable[str]
) -> tuple[list[Column], list[Column]]:
    """The columns that fit at their narrowest, and those that don't, in the table's order."""
    known = {column.name: column for column in columns}
    order = [known[name] for name in least if name in known]
    order += [column for column in reversed(columns[1:]) if column not in order]
    gone: list[Column] = []
    while order:
        kept = [column for column in columns if column not in gone]
        needed = sum(_narrowest(c, c is columns[0]) for c in kept) + _GAP * (len(kept) - 1)
        if needed <= width:
            break
        gone.append(order.pop(0))
    return (
        [column for column in columns if column not in gone],
        [column for column in columns if column in gone],
    )


def _narrowest(column: Column, is_first: bool) -> int:
    if column.is_figure:
        return column.widest
    return min(column.widest, _NARROWEST_FIRST if is_first else _NARROWEST)


def _fit(columns: list[Column], width: int) -> list[int]:
    """The widest gives way first, down to its narrowest."""
    widths = [column.widest for column in columns]
    narrowest = [_narrowest(column, i == 0) for i, column in enumerate(columns)]
    room = width - _GAP * (len(columns) - 1)
    while sum(widths) > room:
        can_give = [i for i in range(len(widths)) if widths[i] > narrowest[i]]
        if not can_give:
            break
        widths[max(can_give, key=lambda i: widths[i])] -= 1
    return widths


def _fill(cell: str, width: int) -> str:
    """Sentences wrap at their spaces, words that are longer are shortened."""
    if len(cell) <= width:
        return cell
    words = " ".join(shorten(word, width) for word in cell.split())
    return textwrap.fill(words, width, break_long_words=False, break_on_hyphens=False)
