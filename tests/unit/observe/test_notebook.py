"""Cells by their numbers, all over a report."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from page_report import page_report

from instrumented_backend.observe import notebook

CELL = "/tmp/ipykernel_17/1018461069.py"


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """IPython's, as far as it is asked: it names cells ("Cell", "In[3]"), and other files not."""
    ipython = ModuleType("IPython")
    compile_ = SimpleNamespace(
        format_code_name=lambda file: ("Cell", "In[3]") if file == CELL else None
    )
    found = SimpleNamespace(compile=compile_)
    monkeypatch.setattr(ipython, "get_ipython", lambda: found, raising=False)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    return found


def test_cells_by_their_numbers(shell: SimpleNamespace, tmp_path: Path) -> None:
    report = page_report(tmp_path)
    program = report.lines[1].file
    report.lines[0].file = report.breaks[0].file = report.files[0].file = CELL
    report.recompiles[0].guards[0].file = report.breaks[0].called_file = CELL
    report.kernels[0].source_lines = [f"{CELL}:4", f"{program}:5"]
    notebook.name_cells(report)
    assert report.lines[0].file == report.breaks[0].file == "In [3]"
    assert report.recompiles[0].guards[0].file == report.breaks[0].called_file == "In [3]"
    assert report.kernels[0].source_lines == ["In [3]:4", f"{program}:5"]
    assert report.lines[1].file == program
    assert (report.files[0].file, report.files[0].text_in) == ("In [3]", CELL)
    assert CELL not in report.to_json().replace(f'"text_in": "{CELL}"', "")


def test_without_a_notebook(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    report = page_report(tmp_path)
    text = report.to_json()
    notebook.name_cells(report)
    assert report.to_json() == text
    assert not notebook.is_kernel()


def test_which_processes_are_notebooks(shell: SimpleNamespace) -> None:
    assert not notebook.is_kernel()  # IPython in a terminal
    shell.kernel = object()
    assert notebook.is_kernel()
