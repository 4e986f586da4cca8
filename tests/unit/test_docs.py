"""The README and the pages: what they name is there, what is generated is what the scripts make."""

import json
import subprocess
import sys
from pathlib import Path

import fields
import pytest
import results_table
import truth_table
from documentation import (
    CHECKED,
    HOW_IT_WORKS,
    README,
    choices_of,
    commands_in,
    complaints_about_blocks,
    complaints_about_commands,
    complaints_about_files,
    complaints_about_links,
    complaints_about_paths,
    complaints_about_variables,
    paths_in,
    unnamed_modules,
    variables_in,
)
from outputs import PAGES, blocks_of, difference, printed, structure_of
from paths import REPOSITORY

from instrumented_backend import settings
from instrumented_backend.commands import cli

every_page = pytest.mark.parametrize(
    "page", CHECKED, ids=lambda page: str(page.relative_to(REPOSITORY))
)


def test_the_readmes_table_of_variables() -> None:
    """All of them, with their defaults and choices, and no others."""
    assert variables_in(README.read_text()) == {
        variable.name: (variable.default, choices_of(variable)) for variable in settings.VARIABLES
    }


def test_the_readme_names_every_command() -> None:
    words = [command.split() for command in commands_in(README, README.read_text())]
    named = {line[1] for line in words if line and line[0] == "instrumented-backend"}
    assert named == set(cli.commands)


@every_page
def test_variables_and_their_values(page: Path) -> None:
    assert complaints_about_variables(page.read_text()) == []


@every_page
def test_commands_and_their_options(page: Path) -> None:
    assert complaints_about_commands(page, page.read_text()) == []


@every_page
def test_links_and_anchors(page: Path) -> None:
    assert complaints_about_links(page, page.read_text()) == []


@every_page
def test_files_that_are_named(page: Path) -> None:
    assert complaints_about_files(page, page.read_text()) == []


@every_page
def test_blocks_say_what_they_are(page: Path) -> None:
    assert complaints_about_blocks(page, page.read_text()) == []


def test_the_three_paths() -> None:
    text = HOW_IT_WORKS.read_text()
    assert len(paths_in(text)) == 3
    assert complaints_about_paths(text) == []


def test_every_module_is_on_the_page() -> None:
    text = HOW_IT_WORKS.read_text()
    assert unnamed_modules(text) == []
    assert unnamed_modules(text.replace("gpu_ledger.py", "")) != []


def test_every_page_is_in_the_index() -> None:
    index = (REPOSITORY / "docs" / "index.md").read_text().split()
    pages = {page.stem for page in PAGES if page.parent.name == "docs"} - {"index"}
    assert pages <= set(index)


@pytest.mark.parametrize(
    "page",
    [
        page
        for page in PAGES
        if (blocks := [block for block in blocks_of(page) if block.kind == "output"])
        and not any(block.compiles for block in blocks)
    ],
    ids=lambda page: page.stem,
)
def test_outputs_that_need_no_compilation(page: Path, tmp_path: Path) -> None:
    for block, now in printed(blocks_of(page), tmp_path):
        if differing := difference(block, now):
            pytest.fail(differing)


# --- Generated ----------------------------------------------------------------------------------


def test_the_tables_of_fields() -> None:
    assert fields.PAGE.read_text() == fields.page(), "python docs/fields.py makes them anew"


def test_the_picture_of_top() -> None:
    """In a process of its own, whose time zone it changes."""
    script = "docs/top_picture.py"
    done = subprocess.run([sys.executable, script, "--check"], cwd=REPOSITORY, timeout=60)
    assert done.returncode == 0, f"python {script} makes it anew"


def test_the_table_of_results() -> None:
    made = results_table.page()
    said = "python benchmarks/results_table.py makes it anew"
    assert results_table.TABLE.read_text() == made, said


RESULT = {
    "group": "cost",
    "claim": "a call",
    "limit": [None, 0.4],
    "unit": "µs",
    "statistic": "median",
    "median": 0.5,
    "low": 0.25,
    "high": 0.75,
    "n": 8,
    "device": "2 CPU cores",
    "versions": {"torch": "2.13.0+cpu", "python": "3.11.7", "triton": None},
    "date": "2026-11-22",
    "commit": None,
    "command": "python benchmarks/overhead.py",
    "row": "call",
}


def test_a_row_of_results() -> None:
    (row,) = results_table.table([RESULT]).splitlines()[-1:]
    assert row == (
        "| What it costs | a call | ≤ 0.4 µs | **0.5 µs (0.25 … 0.75)** | 8 | 2 CPU cores "
        "| torch 2.13.0+cpu, python 3.11.7 | 2026-11-22 | - | `python benchmarks/overhead.py` |"
    )
    known = {**RESULT, "limit": [0.98, 1.02], "unit": "x", "median": 1.0, "low": None}
    (row,) = results_table.table([known]).splitlines()[-1:]
    assert "| 0.98 … 1.02x | 1x |" in row


def test_fields_of_results() -> None:
    """Each file has those that the page beside them names, and no others."""
    page = (results_table.FOLDER / "README.md").read_text()
    for path in results_table.FOLDER.glob("*.json"):
        result = json.loads(path.read_text())
        assert result.keys() == RESULT.keys()
        assert all(f"`{name}`" in page for name in result)
        assert result["versions"].keys() == RESULT["versions"].keys()
        figures = [result["median"]] if result["statistic"] != "range" else [result["low"]]
        assert all(isinstance(figure, (int, float)) for figure in figures)


def test_results_are_taken_from_a_benchmarks_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results_table, "FOLDER", tmp_path)
    monkeypatch.setattr(results_table, "_commit", lambda: "abc1234")
    (tmp_path / "call.json").write_text(json.dumps(RESULT))
    (tmp_path / "other.json").write_text(json.dumps({**RESULT, "row": None}))
    rows = tmp_path / "rows.txt"
    row = {"what": "call", "median": 0.125, "low_quartile": 0.0, "high_quartile": 0.25, "pairs": 48}
    rows.write_text(json.dumps([row, {"model": "gpt2", "figure": "calls"}]))
    assert results_table.take(rows, "NVIDIA H100", "python bench.py") == ["call.json"]
    taken = json.loads((tmp_path / "call.json").read_text())
    figures = [taken[name] for name in ("median", "low", "high", "n", "device", "commit")]
    assert figures == [0.125, 0.0, 0.25, 48, "NVIDIA H100", "abc1234"]
    assert json.loads((tmp_path / "other.json").read_text()) == {**RESULT, "row": None}


ROW = {
    **{"model": "gan", "figure": "eager ops", "cache": "auto", "ours": 1015, "oracle": 1000},
    **{"limit": 1.0, "in_points": False, "worst": 1.75, "ok": False},
}


def test_programs_are_taken_from_rows_of_their_truth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(truth_table, "FOLDER", tmp_path)
    rows = [
        ROW,
        ROW | {"figure": "captured ops", "ours": 1000, "ok": True},
        ROW | {"figure": "eager ops", "cache": "always", "ours": 1900},  # the default's are shown
        ROW | {"figure": "count of aten::mm", "limit": 2.0, "ok": True},
        ROW | {"figure": "aten::mm, %", "in_points": True, "ours": 9, "oracle": 10, "limit": 2.0},
        ROW | {"figure": "op time, %", "in_points": True, "ours": None, "oracle": 10},
        ROW | {"figure": "ledger: python, %", "in_points": True, "ours": 9.5, "oracle": 10},
        ROW | {"figure": "ledger: explained, %", "in_points": True, "ours": 99, "limit": 0},
        ROW | {"figure": "ops, %: truth in spread, % of 3", "ours": 66.7, "oracle": 95, "limit": 0},
        ROW | {"figure": "count of an op: truth in spread, % of 40", "ours": 97.5, "ok": True},
    ]
    path = tmp_path / "rows.txt"
    path.write_text(json.dumps(rows))
    about = {name: RESULT[name] for name in ("device", "versions", "date", "command")}
    about["commit"] = "abc1234"
    assert truth_table.take(path, 3, about) == ["gan-cpu.json"]
    (row,) = truth_table.table(truth_table.read()).splitlines()[-1:]
    assert row == (
        "| gan | **1.50** | 1.50 | 1.00 | 0.50 | - | 41 of 43 | **3 of 10** | 3 | 2 CPU cores "
        "| torch 2.13.0+cpu, python 3.11.7 | 2026-11-22 | `abc1234` |"
    )
    # Of several together, nobody knows whose spreads they were.
    path.write_text(json.dumps([*rows, ROW | {"model": "sleep"}]))
    about["command"] += " --device cuda"
    assert truth_table.take(path, 3, about) == ["gan-cuda.json", "sleep-cuda.json"]
    rows_now = truth_table.table(truth_table.read()).splitlines()[-3:]
    assert [row.split(" | ")[6] for row in rows_now] == ["41 of 43", "-", "-"]


# --- The checks find mistakes -------------------------------------------------------------------

PAGE = REPOSITORY / "docs" / "made-up.md"


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("instrumented-backend tell", "no command tell"),
        ("instrumented-backend show report.rank0.pid17.json --colour", "--colour"),
        ("instrumented-backend show report.rank0.pid17.json --tables grafs", "grafs"),
        ("python -m instrumented_backend trace t.json --top many", "many"),
        ("INSTRUMENTED_OPS=often python train.py", "INSTRUMENTED_OPS='often'"),
        ("python benchmarks/overhead.py --fast", "no option --fast"),
        ("python benchmarks/speed.py", "no benchmarks/speed.py"),
        ("python unheard_of.py", "no page has unheard_of.py"),
        ("pytest tests/unit/test_gone.py", "no tests/unit/test_gone.py"),
        ("pip install -e '.[toys]'", "no extra toys"),
        ("instrumental show", "instrumental is not known"),
    ],
)
def test_wrong_commands(command: str, complaint: str) -> None:
    (found,) = complaints_about_commands(PAGE, f"```bash\n{command}  # why\n```\n")
    assert complaint in found
    assert complaints_about_commands(PAGE, f"Text:\n\n    {command}\n") == [
        found.replace("  # why", "")
    ]


def test_right_commands() -> None:
    text = "```bash\nINSTRUMENTED_OPS=off python train.py --epochs 1\npytest -n 2 tests/unit\n```\n"
    assert complaints_about_commands(PAGE, text) == []


def test_wrong_variables_links_files_blocks_and_paths() -> None:
    assert complaints_about_variables("`INSTRUMENTED_TABLE`, `INSTRUMENTED_OPS=on`") == [
        "INSTRUMENTED_TABLE: no such variable",
        "INSTRUMENTED_OPS='on': choose one of auto, always, off",
    ]
    text = "# A head\n[a](#a-head) [b](#b-head) [c](why.md#caches) [d](why.md#d) [e](gone.md)\n"
    assert complaints_about_links(PAGE, text) == [
        "#b-head: no such heading",
        "why.md#d: no such heading",
        "gone.md: no such file",
    ]
    text = "`backend.py`, `observe/exit.py`, `observe/`, `train.py`, `observe/gone.py`, `attic/`"
    assert complaints_about_files(PAGE, text) == [
        "`attic/`: no such file of ours",
        "`observe/gone.py`: no such file of ours",
    ]
    text = "```text\nout\n```\n\n```\nwhat\n```\n\n```python\nx = = 1\n```\n"
    assert len(complaints_about_blocks(PAGE, text)) == 3
    head = "| file | name | what happens |\n| --- | --- | --- |\n"
    row = "| `instrumented_backend/backend.py` | `{}` | it |\n"
    assert complaints_about_paths(head + row.format("_compile")) == []
    assert complaints_about_paths(head + row.format("_compose")) == [
        "_compose is not in instrumented_backend/backend.py"
    ]
    assert len(complaints_about_paths(head + 7 * row.format("_compile"))) == 1


# --- What is compared of an output --------------------------------------------------------------

SUMMARY = """\
instrumented: 1 graph, 5 calls (+5 backward), 1 graph break, 0 recompiles · torch 2.13.0, cpu
captured 575/2298 ops (25.0 %), 19.4/25 ms op time (77.7 %) · exact, the whole
  run observed
compiled in 22.5 s (kernel compile 14.8 s, codegen 3.72 s) · 15 kernels
graph break at demo.py:47 in forward: Data-dependent branching: what torch
  says of it
missed aten::mul_ at demo.py:64: 4.7 % of op time, 280 calls
missed aten::add_ at demo.py:64: 4.1 % of op time, 280 calls
"""


def test_figures_and_torchs_words_may_differ() -> None:
    other = (
        SUMMARY.replace("19.4/25 ms op time (77.7 %) · exact, the whole\n  run", "1.9/2 s op")
        .replace("1.9/2 s op", "1.9/2 s op time (90 %) · exact, the\n  whole run")
        .replace("(kernel compile 14.8 s, codegen 3.72 s)", "(load 120 ms)")
        .replace("what torch\n  says of it", "other words")
        .replace("missed aten::add_ at demo.py:64: 4.1 % of op time, 280 calls\n", "")
    )
    assert structure_of(other) == structure_of(SUMMARY)


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("captured 575/2298 ops", "captured 575 of 2298 ops"),
        ("graph break at demo.py:47", "break at demo.py:47"),
        (" · 15 kernels", ""),
        ("missed ", "not captured: "),
        ("compiled in", "compiled for"),
    ],
)
def test_labels_may_not_differ(was: str, now: str) -> None:
    assert structure_of(SUMMARY.replace(was, now)) != structure_of(SUMMARY)


def test_a_tables_columns_may_not_differ() -> None:
    table = (
        "Title\nkernel    time  calls\nname      (µs)\n"
        "------  ------  -----\nadd_0   1234.5      1\n"
    )
    assert structure_of(table) == structure_of(table.replace("1234.5", "   9.5"))
    assert structure_of(table) != structure_of(table.replace("calls", "times"))
    assert structure_of(table) != structure_of(table.replace("Title", "Other"))


def test_blocks_come_in_any_order_and_their_lines_do_not() -> None:
    first = [
        "f (p.py:3): recompiled 1 time, 1.9 s",
        "  size of x in dimension 0: 1 → 2",
        "  try: it",
    ]
    second = ["g (p.py:9): recompiled 1 time, 0.8 s", "  try: that"]
    title, after = ["Functions recompiled"], ["next: both"]
    shown = structure_of("\n".join(title + first + second + after))
    assert shown == structure_of("\n".join(title + second + first + after))
    assert shown != structure_of("\n".join(title + first + after))
    assert shown != structure_of("\n".join(title + first[:1] + second + first[1:] + after))
