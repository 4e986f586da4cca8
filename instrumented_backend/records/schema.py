"""The JSON Schema of the report's file, made from the types of its records.

``python -m instrumented_backend.records.schema`` prints what ``docs/report.schema.json`` holds.
"""

import inspect
import json
from typing import Any

import msgspec

from instrumented_backend.records.report import Report

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def report_schema() -> dict[str, Any]:
    return {
        "$schema": DIALECT,
        "title": "The report of instrumented-backend",
        **_normal(msgspec.json.schema(Report)),
    }


def _normal(schema: Any) -> Any:
    """The same for each msgspec: from 0.23 on, it names defaults that are empty, too, and takes the
    indentation of docstrings away."""
    if isinstance(schema, list):
        return [_normal(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    normal = {
        key: _normal(value)
        for key, value in schema.items()
        if not (key == "default" and value in ([], {}))
    }
    if isinstance(schema.get("description"), str):
        normal["description"] = inspect.cleandoc(schema["description"])
    return normal


def text() -> str:
    return json.dumps(report_schema(), indent=1) + "\n"


if __name__ == "__main__":
    print(text(), end="")
