"""A report as the text of its file."""

import json
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from instrumented_backend.records.compilation import CompileSection
from instrumented_backend.records.fields import field_values

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def encode(report: "DataclassInstance") -> str:
    """One line for each section, and for each item of a section that is a list.

    A figure that is not finite is written as null: JSON has no word for it. A byte of a name that
    is no UTF-8 is written as ``\\udcff``, as Python's own JSON does, and read as the same byte.
    """
    return "".join(encoded(report))


def encoded(report: "DataclassInstance", spaced: bool = True) -> Iterator[str]:
    """The same piece by piece, none of which takes long; lists in half the time if not spaced."""
    encode_item = encode_line if spaced else _encode_tight
    between = "{\n"
    for name, value in field_values(report).items():
        yield f'{between} "{name}": '
        between = ",\n"
        if isinstance(value, list) and value:
            before = "[\n  "
            for item in value:
                yield before + encode_item(item)
                before = ",\n  "
            yield "\n ]"
        else:
            yield _section(value)
    yield "\n}"


def _encode_tight(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        return encode_line(value)


def _section(value: Any) -> str:
    if isinstance(value, CompileSection) and not value.cudagraphs.were_tried:
        return encode_line({**msgspec.to_builtins(value), "cudagraphs": {}})
    return encode_line(value)


def encode_line(value: Any) -> str:
    """Records and plain data as JSON on one line."""
    try:
        text = msgspec.json.encode(value)
    except UnicodeEncodeError:  # a name that is no UTF-8
        return json.dumps(_finite(msgspec.to_builtins(value)))
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
