"""Tables, CSV and JSON have one writer each."""

import csv
import io
import json

from instrumented_backend.views.output import TableRow, render_view, to_csv, to_json_lines


class Named:
    """A view that tells its width."""

    def text(self, width: int) -> str:
        return f"{width} columns"

    def rows(self) -> list[TableRow]:
        return [{"a": 1, "b": None}, {"a": 0.5, "c": "x, y"}]

    def json(self) -> str:
        return "{}"


def test_the_layouts_of_a_view() -> None:
    assert render_view(Named(), "table", 40) == "40 columns"
    assert render_view(Named(), "json") == "{}"
    rows = list(csv.DictReader(io.StringIO(render_view(Named(), "csv"))))
    assert rows == [{"a": "1", "b": "", "c": ""}, {"a": "0.5", "b": "", "c": "x, y"}]


def test_csv_without_rows_is_empty() -> None:
    assert to_csv([]) == ""


def test_a_list_in_json_has_a_line_for_each_item() -> None:
    text = to_json_lines([{"a": 1}, {"a": 2}])
    assert text.splitlines() == ["[", '{"a": 1},', '{"a": 2}', "]"]
    assert json.loads(text) == [{"a": 1}, {"a": 2}]
