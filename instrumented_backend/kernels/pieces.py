"""The text of a wrapper's function as statements, a few dozen at a time."""

import ast
from collections.abc import Callable, Iterable

PIECE_LINES = 60  # of a function, parsed at a time


def pieces_of(text: str, pause: Callable[[], None]) -> list[tuple[list[ast.stmt], list[str]]]:
    """A function, given as text, as statements with their lines, a few dozen at a time.

    Parsing the whole of a large one would keep every other thread waiting for tens of
    milliseconds; ``pause`` is called between the pieces. Raises SyntaxError.
    """
    lines = text.split("\n")
    try:
        return [(tree.body, piece) for tree, piece in _pieces(lines[1:], pause)]
    except SyntaxError:
        # A statement that runs over lines in a way that the pieces cut through.
        indent = len(lines[0]) - len(lines[0].lstrip())
        tree = ast.parse("\n".join(line[indent:] for line in lines))
        (function,) = tree.body
        assert isinstance(function, ast.FunctionDef)
        return [(function.body, lines)]


def _pieces(lines: list[str], pause: Callable[[], None]) -> Iterable[tuple[ast.Module, list[str]]]:
    """The lines of a function's body as modules of their own; the line of a ``with`` is dropped."""
    piece: list[str] = []
    base: int | None = None
    for line in lines:
        text = line.lstrip(" ")
        indent = len(line) - len(text)
        if not text or text.startswith("#"):
            piece.append(text)
            continue
        if base is not None and (
            indent < base or (indent == base and (len(piece) >= PIECE_LINES or _is_with(text)))
        ):
            yield ast.parse("\n".join(piece)), piece
            pause()
            piece, base = [], None
        if base is None and _is_with(text):
            continue
        if text.startswith("del ") and ";" not in text:  # a third of the lines: nothing to follow
            piece.append("")
            continue
        if base is None:
            base = indent
        piece.append(line[base:])
    yield ast.parse("\n".join(piece)), piece


def _is_with(text: str) -> bool:
    return text.startswith("with ") and text.endswith(":")
