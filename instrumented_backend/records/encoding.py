"""A report as the text of its file."""

from typing import TYPE_CHECKING, Any

import msgspec

from instrumented_backend.records.compilation import CompileSection
from instrumented_backend.records.fields import field_values
from instrumented_backend.records.surrogates import without_surrogates

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def encode(report: "DataclassInstance") -> str:
    """One line for each section, and for each item of a section that is a list.

    A figure that is not finite is written as null: JSON has no word for it. A byte of a name that
    is no UTF-8 is written as ``\\xff``: JSON is text.
    """
    sections = (f' "{name}": {_section(value)}' for name, value in field_values(report).items())
    return "{\n" + ",\n".join(sections) + "\n}"


def _section(value: Any) -> str:
    if isinstance(value, list) and value:
        return "[\n  " + ",\n  ".join(map(encode_line, value)) + "\n ]"
    if isinstance(value, CompileSection) and not value.cudagraphs.were_tried:
        return encode_line({**msgspec.to_builtins(value), "cudagraphs": {}})
    return encode_line(value)


def encode_line(value: Any) -> str:
    """Records and plain data as JSON on one line."""
    try:
        text = msgspec.json.encode(value)
    except UnicodeEncodeError:
        text = msgspec.json.encode(without_surrogates(msgspec.to_builtins(value)))
    return msgspec.json.format(text, indent=0).decode()
