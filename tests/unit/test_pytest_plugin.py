"""The plugin, in a pytest of its own; what it says of compilations is in tests/programs."""

import subprocess
import sys
from pathlib import Path

import pytest
from made_reports import report

from instrumented_backend.pytest_plugin import _write

PLUGIN = ("-p", "instrumented_backend.pytest_plugin")


def run(folder: Path, source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(source)
    # By name, because the tests may run where the package is not installed; not twice.
    command = [sys.executable, "-m", "pytest", "-q", "-pno:cacheprovider", "-pno:instrumented"]
    return subprocess.run(
        [*command, *PLUGIN, "--rootdir", str(folder), "-c", "/dev/null", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
    )


def test_it_costs_no_import_where_nobody_asks(tmp_path: Path) -> None:
    source = """
import sys

def test_it():
    ours = {name.partition(".")[2] for name in sys.modules if name.startswith("instrumented_")}
    assert not {name for name in ours if name.startswith(("backend", "compare", "records"))}
    assert "torch" not in sys.modules and "msgspec" not in sys.modules
"""
    done = run(tmp_path, source)
    assert done.returncode == 0, done.stdout
    assert "compile report" not in done.stdout and done.stderr == ""


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ("graph_brakes=0", "no limit 'graph_brakes'; did you mean graph_breaks? Choose from"),
        ("graph_breaks='none'", "graph_breaks = 'none': give a number from 0 on"),
        ("0", "compile_budget takes names: compile_budget(graph_breaks=0)"),
        ("", "compile_budget takes names: compile_budget(graph_breaks=0)"),
    ],
)
def test_what_is_no_budget(tmp_path: Path, mark: str, said: str) -> None:
    source = f"import pytest\n@pytest.mark.compile_budget({mark})\ndef test_it(): ...\n"
    done = run(tmp_path, source, "--strict-markers")
    assert done.returncode == 1
    assert said in done.stdout and "1 error" in done.stdout
    assert "Traceback" not in done.stdout and "pytest_plugin.py" not in done.stdout


def test_a_wrong_variable_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INSTRUMENTED_OPS", "often")
    done = run(tmp_path, "def test_it(): ...\n", "--compile-report")
    assert done.returncode == 4
    assert "ERROR: INSTRUMENTED_OPS='often': choose one of auto, always, off" in done.stderr


def test_a_suite_that_compiles_nothing(tmp_path: Path) -> None:
    done = run(tmp_path, "def test_it(): ...\n", "--compile-report")
    assert done.returncode == 0
    assert "no test compiled anything with Inductor" in done.stdout


def test_a_folder_stands_behind_an_equals_sign(tmp_path: Path) -> None:
    """Or the tests that somebody wants to run are taken for it, and all others run."""
    done = run(tmp_path, "def test_it(): ...\n", "--compile-report", "test_it.py")
    assert done.returncode == 4 and not done.stdout.strip().startswith("1 passed")
    assert "write --compile-report=test_it.py to have reports there" in done.stderr
    done = run(tmp_path, "def test_it(): ...\n", "--compile-report=test_it.py")
    assert (done.returncode, "test_it.py: not a folder" in done.stderr) == (4, True)
    done = run(tmp_path, "def test_it(): ...\n", "test_it.py", "--compile-report")
    assert done.returncode == 0 and "1 passed" in done.stdout


def test_a_report_that_cannot_be_written_fails_no_test(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "file" in str(_write(report(), tmp_path / "file", "test_it.py::test_a"))
    assert "null" in (_write(report(), Path("\0"), "test_it.py::test_a") or "")
    # A file's name has 255 bytes at most, and letters may have four each.
    name = f"test_it.py::test_{'名' * 150}[é/..\ud800]"
    assert _write(report(), tmp_path / "reports", name) is None
    (written,) = (tmp_path / "reports").iterdir()
    assert written.name.isascii()
