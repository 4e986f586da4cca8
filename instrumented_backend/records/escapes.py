"""Text of others: names, paths and messages, which may hold anything.

In records it stays as it is; Python keeps a byte that is no UTF-8 as a surrogate. A terminal shows
escapes for what would move its cursor, change its colours or reverse its line; and for what the
log of a build would take for a command: ``::error::`` at the beginning of a line, or ``##[``.
"""

import re
from typing import Any

# Controls, line and paragraph separators, marks of direction, surrogates; commands.
_UNSEEN = re.compile(
    "[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
    r"|#(?=#\w*\[)"
)
_UNSEEN_IN_LINE = re.compile(_UNSEEN.pattern.replace("\0-\x1f", "\0-\x09\x0b-\x1f"))
_COMMAND = re.compile(r"^([ \t]*):(?=:)", re.MULTILINE)
_SURROGATE = re.compile("[\ud800-\udfff]")
_NO_BYTE = re.compile("[\ud800-\udc7f\udd00-\udfff]")  # surrogates that stand for no byte
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def shown(text: str) -> str:
    """For one line of a terminal: ``\\x1b``, ``\\n``, ``\\u202e``, and ``\\xe9`` for a byte."""
    return _UNSEEN.sub(_escaped, text)


def shown_lines(text: str) -> str:
    """The same for lines, whose ends stay, and which are printed as they are."""
    return _COMMAND.sub(r"\1\\x3a", within_lines(text))


def within_lines(text: str) -> str:
    """The same for lines that are commands, or that nobody takes for any."""
    return _UNSEEN_IN_LINE.sub(_escaped, text)


def without_surrogates(value: Any) -> Any:
    """Plain data with escapes in their place, for what takes UTF-8 only."""
    if isinstance(value, str):
        return _SURROGATE.sub(_escaped, value)
    if isinstance(value, list):
        return [without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {without_surrogates(key): without_surrogates(item) for key, item in value.items()}
    return value


def to_bytes(text: str) -> bytes:
    """UTF-8, with the bytes of a name as they were."""
    return _NO_BYTE.sub(_escaped, text).encode("utf-8", "surrogateescape")


def _escaped(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        code -= 0xDC00
    return _SHORT.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
