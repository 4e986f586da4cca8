"""The JSON Schema in the docs: that of today's records, and what real reports keep to."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from paths import DATA, REPOSITORY
from sample_report import sample

from instrumented_backend.records import read_report
from instrumented_backend.records.schema import report_schema, text

SHIPPED = REPOSITORY / "docs" / "report.schema.json"
RECORDED = sorted((DATA / "reports").glob("*.json"))


def errors(data: Any) -> list[str]:
    validator = jsonschema.Draft202012Validator(json.loads(SHIPPED.read_text()))
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(data)]


def test_the_file_is_of_these_records() -> None:
    said = "python -m instrumented_backend.records.schema > docs/report.schema.json makes it anew"
    assert SHIPPED.read_text() == text(), said


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(report_schema())


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_reports_of_the_last_release(path: Path) -> None:
    assert errors(json.loads(path.read_text())) == []


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_what_is_written_of_them_now(path: Path) -> None:
    assert errors(json.loads(read_report(path).to_json())) == []


def test_everything_that_is_written() -> None:
    assert errors(json.loads(sample().to_json())) == []


def test_what_it_refuses() -> None:
    data = json.loads(sample().to_json())
    data["graphs"][0]["calls"] = "five"
    del data["run"]["pid"]
    data["added"] = {"later": 1}  # ignored
    assert errors(data) == [
        "$.run: 'pid' is a required property",
        "$.graphs[0].calls: 'five' is not of type 'integer'",
    ]
