"""Places in the program, as text."""

import re

_LINE = re.compile("[0-9]{1,18}")


def place(text: str) -> tuple[str, int | None]:
    """``"file.py:12"`` as its file and its line; None, and all of the text, where it has none."""
    file, separator, digits = text.rpartition(":")
    line = line_number(digits) if separator and file else None
    return (text, None) if line is None else (file, line)


def line_number(digits: str) -> int | None:
    """What other alphabets count with is no line, nor what Python refuses to read."""
    return int(digits) if _LINE.fullmatch(digits) else None
