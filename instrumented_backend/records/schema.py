"""The JSON Schema of the report's file, made from the types of its records.

``python -m instrumented_backend.records.schema`` prints what ``docs/report.schema.json`` holds.
"""

import json
from typing import Any

import msgspec

from instrumented_backend.records.report import Report

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def report_schema() -> dict[str, Any]:
    return {
        "$schema": DIALECT,
        "title": "The report of instrumented-backend",
        **msgspec.json.schema(Report),
    }


def text() -> str:
    return json.dumps(report_schema(), indent=1) + "\n"


if __name__ == "__main__":
    print(text(), end="")
