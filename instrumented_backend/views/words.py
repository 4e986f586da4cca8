"""Words and figures as every text shows them."""

import os
import textwrap


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def seconds(value: float) -> str:
    return f"{value:.1f} s" if value >= 10 else f"{value:.2f} s"


def phase(name: str) -> str:
    """``"aot_autograd_s"``, as records have it, in words."""
    return name.removesuffix("_s").replace("_", " ")


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


def wrap(
    text: str, width: int, max_lines: int | None = None, break_words: bool = False
) -> list[str]:
    """Lines no wider than ``width``, but for words that are, unless these are broken, too."""
    return textwrap.wrap(
        text,
        max(width, 40),
        subsequent_indent="  ",
        max_lines=max_lines,
        placeholder=" ...",
        break_long_words=break_words,
        break_on_hyphens=False,
    )


def percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} %"


def duration(microseconds: float) -> str:
    """``"41.2 ms"``: in the unit that suits it."""
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= size:
            return f"{microseconds / size:.3g} {unit}"
    return f"{microseconds:.3g} µs"


def size(bytes_: float) -> str:
    """``"8.2 KB"``: in the decimal unit that suits it."""
    for unit, of in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if bytes_ >= of:
            return f"{bytes_ / of:.3g} {unit}"
    return f"{bytes_:.0f} B"
