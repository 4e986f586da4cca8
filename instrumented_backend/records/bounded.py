"""Files and JSON of others, read within bounds: whatever stands there, nothing hangs or grows.

Without msgspec, which is not imported in a program that is only observed.
"""

import json
import math
import os
import re
import stat
from pathlib import Path
from typing import Any, NoReturn

LARGEST = 2**63 - 1  # what fits 64 bits
MAX_MEMORY = 800_000_000  # bytes, for the text and the objects of one file
_OBJECTS = ((b"{", 240), (b"[", 72), (b",", 64))  # bytes of what begins there, at most
_ASTRAL, _WIDE = re.compile(b"[\xf0-\xf4]"), re.compile(b"[\xc4-\xef]")  # of UTF-8
_LARGE = re.compile(r"[0-9]{19}|[0-9][eE]\+?[0-9]{3}")
_DIGITS = len(str(LARGEST))


class NotReadable(ValueError):
    """A file or a text that is none of ours; the message is one line."""


def read_text(path: Path, max_bytes: int) -> str:
    """The UTF-8 of a regular file; raises OSError, or `NotReadable`."""
    return decoded(read_bytes(path, max_bytes))


def read_bytes(path: Path, max_bytes: int) -> bytes:
    """All of a regular file; raises OSError, or `NotReadable`."""
    try:
        # A pipe would wait for a writer.
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:
        raise NotReadable(f"cannot be read: {error}") from None  # no name that a file can have
    with open(file, "rb") as stream:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise NotReadable("not a file, but a pipe or a device")
        return checked(stream.read(max_bytes + 1), max_bytes)


def checked(content: bytes, max_bytes: int) -> bytes:
    """What was read of something; raises `NotReadable` where that is more than ``max_bytes``."""
    if len(content) > max_bytes:
        raise NotReadable(f"larger than {max_bytes >> 20} MB")
    return content


def light(content: bytes) -> bytes:
    """JSON that takes no more than its share of memory as objects; raises `NotReadable`.

    It is reckoned before anything is made of it: a list of empty lists takes twenty times as much.
    """
    width = 4 if _ASTRAL.search(content) else 2 if _WIDE.search(content) else 1
    text = (1 + 2 * width) * len(content)
    objects = sum(each * content.count(sign) for sign, each in _OBJECTS)
    if text + objects > MAX_MEMORY:
        raise NotReadable(f"it would take more than {MAX_MEMORY // 1_000_000} MB")
    return content


def decoded(content: bytes) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise NotReadable("not text") from None


def parse(text: str) -> Any:
    """JSON with numbers of at most 64 bits; raises `NotReadable`."""
    # A look at each number takes most of the time: only where one may be too large.
    is_safe = _LARGE.search(text) is None
    whole, real = (None, None) if is_safe else (_int, _float)
    try:
        return json.loads(text, parse_int=whole, parse_float=real, parse_constant=_not_finite)
    except NotReadable:
        raise
    except (ValueError, RecursionError) as error:
        raise NotReadable(f"not JSON, or cut short ({error})") from None


def _int(digits: str) -> int:
    # Their number first: Python refuses to read very many.
    if len(digits) > _DIGITS + 1 or not -LARGEST <= int(digits) <= LARGEST:
        raise NotReadable(f"a number of more than 64 bits in it: {_short(digits)}")
    return int(digits)


def _float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise NotReadable(f"a number that is too large in it: {_short(digits)}")
    return value


def _not_finite(word: str) -> NoReturn:
    raise NotReadable(f"not JSON: {word} is no number")


def _short(digits: str) -> str:
    return digits if len(digits) <= 30 else f"{digits[:30]}..."
