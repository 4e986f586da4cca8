"""How Sphinx builds these pages: `sphinx-build -W --keep-going docs docs/_build`."""

import tomllib
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
_PROJECT = tomllib.loads((DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]

project = _PROJECT["name"]
version = release = _PROJECT["version"]
extensions = ["myst_parser"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = project
myst_heading_anchors = 3  # as GitHub makes them, so that a link works in both places
nitpicky = True

# The JSON Schema of the report is generated; it is shown and shipped where it is there.
_SCHEMA = DOCS / "report.schema.json"
_SCHEMAS_PLACE = "<!-- report.schema.json -->"
_SHOWN = """The [JSON Schema](report.schema.json) is generated from the types.

```{literalinclude} report.schema.json
:language: json
```
"""
html_extra_path = [_SCHEMA.name] if _SCHEMA.exists() else []


def _show_schema(app: Any, page: str, source: list[str]) -> None:
    if page == "report-format" and _SCHEMA.exists():
        source[0] = source[0].replace(_SCHEMAS_PLACE, _SHOWN)


def setup(app: Any) -> None:
    app.connect("source-read", _show_schema)
