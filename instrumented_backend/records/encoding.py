"""A report as the text of its file."""

import json
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from instrumented_backend.records.compilation import CompileSection
from instrumented_backend.records.fields import field_values

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def _plain(value: Any) -> Any:
    """Of numpy's scalars and other kinds of number, in a figure of somebody else's."""
    for kind in (float, int, str):
        if isinstance(value, kind):
            return kind(value)
    if callable(item := getattr(value, "item", None)):
        return item()
    raise NotImplementedError


_ENCODER = msgspec.json.Encoder(enc_hook=_plain)
_AT_ONCE = 100  # items of a list: no other thread runs meanwhile
# Lists that a snapshot may have taken from the one before. Longer texts would be too much memory.
_REPEATED = frozenset({"kernels", "lines", "files"})
_LONGEST_KEPT = 250_000  # bytes


def encode(report: "DataclassInstance") -> str:
    """One line for each section, and for each item of a section that is a list.

    A figure that is not finite is written as null: JSON has no word for it. A byte of a name that
    is no UTF-8 is written as ``\\udcff``, as Python's own JSON does, and read as the same byte.
    """
    sections = []
    for name, value in field_values(report).items():
        if isinstance(value, list) and value:
            text = "[\n  " + ",\n  ".join(map(encode_line, value)) + "\n ]"
        else:
            text = encode_line(_section(value))
        sections.append(f' "{name}": {text}')
    return "{\n" + ",\n".join(sections) + "\n}"


def encoded(
    report: "DataclassInstance", known: dict[str, tuple[list[Any], bytes]]
) -> Iterator[bytes]:
    """The same piece by piece, none of which takes long, and in less time: lists in the section
    ``compile`` have lines too, and there are fewer spaces. See `Report.encoded`."""
    yield from _fields(field_values(report), known)


def _fields(values: dict[str, Any], known: dict[str, tuple[list[Any], bytes]]) -> Iterator[bytes]:
    before = b"{\n"
    for name, value in values.items():
        yield before + _tight(name) + b":"
        before = b",\n"
        if name in _REPEATED:
            yield from _repeated(name, value, known)
        elif isinstance(value, list):
            yield from _items(value)
        elif isinstance(value, CompileSection):
            yield from _fields(_section(value), known)
        else:
            yield _tight(value)
    yield b"}"


def _repeated(
    name: str, values: list[Any], known: dict[str, tuple[list[Any], bytes]]
) -> Iterator[bytes]:
    last, text = known.get(name, (None, b""))
    if last is values:
        yield text
        return
    known.pop(name, None)
    pieces: list[bytes] = []
    size = 0
    for piece in _items(values):
        size += len(piece)
        if size <= _LONGEST_KEPT:
            pieces.append(piece)
        yield piece
    if size <= _LONGEST_KEPT:
        known[name] = values, b"".join(pieces)


def _items(values: list[Any]) -> Iterator[bytes]:
    before = b"[\n"
    for start in range(0, len(values), _AT_ONCE):
        yield before + _lines(values[start : start + _AT_ONCE])
        before = b",\n"
    yield b"]" if values else b"[]"


def _lines(values: Sequence[Any]) -> bytes:
    try:
        return _ENCODER.encode_lines(values)[:-1].replace(b"\n", b",\n")
    except UnicodeEncodeError:
        return b",\n".join(map(_tight, values))


def _tight(value: Any) -> bytes:
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError:
        return encode_line(value).encode()


def _section(value: Any) -> Any:
    if not isinstance(value, CompileSection):
        return value
    tried = value.cudagraphs.were_tried
    return field_values(value) if tried else {**field_values(value), "cudagraphs": {}}


def encode_line(value: Any) -> str:
    """Records and plain data as JSON on one line."""
    try:
        text = _ENCODER.encode(value)
    except UnicodeEncodeError:  # a name that is no UTF-8
        return json.dumps(_finite(msgspec.to_builtins(value, enc_hook=_plain)))
    return msgspec.json.format(text, indent=0).decode()


def _finite(value: Any) -> Any:
    """Plain data with null for what is not finite, as msgspec writes it."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return value
