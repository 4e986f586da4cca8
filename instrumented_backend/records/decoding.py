"""Reads a report's file: every type is checked, unknown fields are ignored.

What is wrong is told in one line with its place: ``graphs[3].calls: expected int, got str``.
"""

import re
from typing import Any, TypeVar

import msgspec

from instrumented_backend.records import bounded
from instrumented_backend.records.upgrade import upgrade
from instrumented_backend.records.version import SCHEMA_VERSION, ReportError

_SAID = re.compile(r"(?P<what>.*?)(?: - at `(?:key` in `)?\$\.?(?P<place>.*)`)?", re.DOTALL)
_ABSENT = re.compile(r"Object missing required field `(?P<field>\w+)`")

Type = TypeVar("Type")


def decode(text: str, kind: type[Type]) -> Type:
    """A file's text as ``kind``, the type of the whole report.

    Raises `ReportError` where the text is not JSON, not a report, or of another version.
    """
    # Not msgspec's parser: it refuses names that are no UTF-8, and does not check a number's size.
    try:
        data = bounded.parse(text)
    except bounded.NotReadable as error:
        raise ReportError(str(error)) from None
    if not isinstance(data, dict) or "schema_version" not in data:
        raise ReportError("not a report of instrumented-backend: no schema_version in it")
    version = data["schema_version"]
    if type(version) is int and version != SCHEMA_VERSION:
        raise ReportError(f"schema_version is {version}; this version reads {SCHEMA_VERSION} only")
    upgrade(data)
    return convert(data, kind)


def convert(data: Any, kind: type[Type]) -> Type:
    """Plain data as records; raises `ReportError`."""
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise ReportError(_one_line(str(error))) from None
    except UnicodeEncodeError as error:
        raise ReportError(f"a field's name that is no text: {error.reason}") from None


def _one_line(said: str) -> str:
    """msgspec's ``Expected `int`, got `str` - at `$.graphs[3].calls` `` in our form."""
    match = _SAID.fullmatch(said)
    place = (match and match["place"]) or ""
    what = match["what"] if match else said
    absent = _ABSENT.fullmatch(what)
    if absent is not None:
        place = f"{place}.{absent['field']}" if place else absent["field"]
        return f"{place}: missing"
    words = " ".join(what.replace("`", "").split())
    words = words[:1].lower() + words[1:]
    return f"{place}: {words}" if place else words
