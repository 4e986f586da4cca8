"""Words as every text shows them; figures are in `instrumented_backend.units`."""

import os
import re
import textwrap

from instrumented_backend.records.escapes import shown
from instrumented_backend.units import whole, with_spread

_RESUMED = re.compile(r"torch_dynamo_resume_in_(.*)_at_(\d+)")


def count(number: int, noun: str, spread: float | None = None) -> str:
    """``"1 call"``, ``"280 ± 4 calls"``"""
    figure = with_spread(whole(number), spread)
    return f"{figure} {noun}" if figure == "1" else f"{figure} {noun}s"


def function_words(function: str | None) -> str:
    """``torch_dynamo_resume_in_f_at_9`` is Dynamo's name for the rest of ``f``."""
    found = _RESUMED.fullmatch(function or "a function")
    return f"the rest of {found[1]} from line {found[2]}" if found else function or "a function"


def phase(name: str) -> str:
    """``"aot_autograd_s"``, as records have it, in words."""
    return name.removesuffix("_s").replace("_", " ")


_RESUMED = re.compile(r"\btorch_dynamo_resume_in_(?P<function>\w+?)_at_(?P<line>\d+)\b")


def function(text: str) -> str:
    """``"forward from line 47 on"`` for what Dynamo calls the rest of a function, after a break."""
    return _RESUMED.sub(r"\g<function> from line \g<line> on", text)


def short_path(file: str | None, line: int | str | None) -> str:
    """From the working folder or the installed package on; of other paths, the last two parts."""
    if file is None:
        return "an unknown place"
    folder = _working_folder()
    installed = file.rpartition(f"{os.sep}site-packages{os.sep}")[2]
    if installed != file:
        file = installed
    elif folder and file.startswith(folder + os.sep):
        file = file[len(folder) + 1 :]
    elif file.count(os.sep) > 2:
        file = os.path.join("...", *file.split(os.sep)[-2:])
    return file if line is None else f"{file}:{line}"


def _working_folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:
        return None  # it has been deleted


MAX_TEXT = 20_000  # characters of one text: a report may be one long one


def in_line(text: str) -> str:
    """For one line of a terminal, which nobody reads to its end if it is very long."""
    return shown(beginning(text))


def beginning(text: str) -> str:
    """All of it, unless nobody would read it to its end."""
    if len(text) <= MAX_TEXT:
        return text
    return f"{text[:MAX_TEXT]} ... {len(text) - MAX_TEXT:,} more characters"


_SPACES = str.maketrans("\n\t", "  ")  # what parts a sentence's words


def wrap(
    text: str, width: int, max_lines: int | None = None, break_words: bool = False
) -> list[str]:
    """Lines no wider than ``width``, but for words that are, unless these are broken, too.

    Of a text that nobody would read to its end, the beginning.
    """
    return textwrap.wrap(
        shown(beginning(text).translate(_SPACES)),
        max(width, 40),
        subsequent_indent="  ",
        max_lines=max_lines,
        placeholder=" ...",
        break_long_words=break_words,
        break_on_hyphens=False,
    )
