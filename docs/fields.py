"""The tables of fields in `report-format.md`, from the records' own source.

    python docs/fields.py              # write them into the page

A field's meaning is the comment on its line, or the string below it; a record's, its docstring.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

DOCS = Path(__file__).parent
PAGE = DOCS / "report-format.md"
PACKAGE = DOCS.parent / "instrumented_backend"
# The records of another file, and what reads and writes them.
_OTHER = (
    *("bench", "csv_rows", "decoding", "encoding", "fields", "notes", "part", "schema"),
    *("side_files", "store", "escapes", "upgrade", "whole_file", "rank_reports", "ranks", "remote"),
    *("follow", "live", "trials"),
)
# The report's own sections first.
SOURCES = sorted(
    (path for path in (PACKAGE / "records").glob("*.py") if path.stem not in _OTHER),
    key=lambda path: (path.stem != "report", path.stem),
)
BEGIN, END = "<!-- fields: python docs/fields.py -->", "<!-- end of fields -->"


def tables() -> str:
    """A section for each record but `Report`, in the order of the source."""
    return "\n".join(line for source in SOURCES for line in _of_module(source.read_text("utf-8")))


def page() -> str:
    """The page with its tables as the source has them now."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{tables()}\n{END}{after}"


def _of_module(source: str) -> Iterator[str]:
    lines = source.splitlines()
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and node.name != "Report" and _is_record(node):
            yield from _of_record(node, lines)


def _is_record(node: ast.ClassDef) -> bool:
    decorators = {ast.unparse(decorator).partition("(")[0] for decorator in node.decorator_list}
    return "dataclass" in decorators and not node.name.startswith("_")


def _of_record(node: ast.ClassDef, lines: list[str]) -> Iterator[str]:
    yield f"### {node.name}\n"
    yield (ast.get_docstring(node) or "").replace("``", "`") + "\n"
    yield "| field | type | meaning |\n| --- | --- | --- |"
    for field, below in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            kind = ast.unparse(field.annotation).replace("|", "\\|")
            yield f"| `{field.target.id}` | {kind} | {_meaning(field, below, lines)} |"
    yield ""


def _meaning(field: ast.AnnAssign, below: ast.stmt | None, lines: list[str]) -> str:
    text = lines[(field.end_lineno or field.lineno) - 1].partition("  # ")[2]
    if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
        text = " ".join(str(below.value.value).split())
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
