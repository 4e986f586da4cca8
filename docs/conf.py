"""How Sphinx builds these pages: `sphinx-build -W --keep-going docs docs/_build`."""

import tomllib
from pathlib import Path

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
