"""Budgets and reports of tests that compile, with pytest-xdist and without."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = """
import unittest

import pytest
import torch

BUDGET = pytest.mark.compile_budget(graph_breaks=0, recompiles=0, captured=20)
at_import = torch.compile(lambda x: x.tan())


def good(x):
    return x.sin() + 1


@BUDGET
def test_good():
    step = torch.compile(good)
    assert torch.equal(step(torch.ones(8)), good(torch.ones(8)))


@BUDGET
def test_good_again_though_it_is_compiled():
    test_good()


@BUDGET
def test_bad():
    def bad(x):
        y = x.sin()
        print("here")  # line 30
        return y + 1
    torch.compile(bad)(torch.ones(8))


def test_fixture(compile_report):
    torch.compile(good)(torch.ones(8))
    assert compile_report.summary.graphs == compile_report().summary.graphs == 1
    compile_report.check(graphs=1, graph_breaks=0)
    compile_report.check(graphs=0)


def test_another_backend_is_left_alone():
    torch.compile(good, backend="eager")(torch.ones(8))


@BUDGET
def test_nothing():
    torch.ones(8).sin()


@BUDGET
def test_at_import():
    at_import(torch.ones(8))


@BUDGET
def test_fails_by_itself():
    torch.compile(good)(torch.ones(8))
    assert 1 == 2


@pytest.fixture(scope="class")
def step():
    return torch.compile(good)


@BUDGET
class TestOfOneFixture:
    def test_first(self, step):
        step(torch.ones(8))

    @pytest.mark.parametrize("size", [8, 9])
    def test_each_starts_afresh(self, step, size):
        step(torch.ones(size))


class TestUnittest(unittest.IsolatedAsyncioTestCase):
    @BUDGET
    def test_kept(self):
        torch.compile(good)(torch.ones(8))

    @BUDGET
    async def test_awaited(self):
        def bad(x):
            y = x.sin()
            print("awaited")
            return y + 1
        torch.compile(bad)(torch.ones(8))

    @BUDGET
    def test_skipped(self):
        self.skipTest("not here")
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(SOURCE)
    command = [sys.executable, "-m", "pytest", "-pno:cacheprovider", "-pno:instrumented", "-rA"]
    plugin = ["-p", "instrumented_backend.pytest_plugin", "-c", "/dev/null"]
    environ = {name: text for name, text in os.environ.items() if name != "INSTRUMENTED_TABLES"}
    return subprocess.run(
        [*command, *plugin, "--rootdir", str(folder), *arguments],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
    )


def outcomes(text: str) -> dict[str, str]:
    lines = (line.split() for line in text.splitlines() if "test_it.py::" in line)
    words = {w[1].partition("::")[2]: w[0] for w in lines if w[0] in ("PASSED", "FAILED", "ERROR")}
    return words


EXPECTED = {
    "test_good": "PASSED",
    "test_good_again_though_it_is_compiled": "PASSED",
    "test_bad": "FAILED",
    "test_fixture": "FAILED",
    "test_another_backend_is_left_alone": "PASSED",
    "test_nothing": "FAILED",
    "test_at_import": "FAILED",
    "test_fails_by_itself": "FAILED",
    "TestOfOneFixture::test_first": "PASSED",
    "TestOfOneFixture::test_each_starts_afresh[8]": "PASSED",
    "TestOfOneFixture::test_each_starts_afresh[9]": "PASSED",
    "TestUnittest::test_kept": "PASSED",
    "TestUnittest::test_awaited": "FAILED",
}
BREAK = {"test_bad", "TestUnittest::test_awaited"}


@pytest.mark.full
def test_budgets_and_the_fixture(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert outcomes(done.stdout) == EXPECTED, done.stdout
    assert "graph_breaks is 1, at most 0 (compile_budget)" in done.stdout
    assert '  test_it.py:30 `print("here")' in done.stdout
    assert '`print("awaited")' in done.stdout and "1 skipped" in done.stdout
    assert "graph break in bad" in done.stdout
    assert "reorderable_logging_functions.add(print)" in done.stdout
    assert "graphs is 1, at most 0 (compile_budget)" in done.stdout
    assert "this test compiled nothing with Inductor" in done.stdout
    assert "the graph breaks of some graphs cannot be seen" in done.stdout
    assert "assert 1 == 2" in done.stdout
    assert "compile report" not in done.stdout
    assert "instrumented:" not in done.stderr  # no summary at exit


@pytest.mark.full
def test_a_report_of_each_test_with_xdist(tmp_path: Path) -> None:
    done = run(tmp_path, "--compile-report=reports", "-n1")
    # What is compiled by a module's import comes to the backend as a whole now.
    assert outcomes(done.stdout) == {**EXPECTED, "test_at_import": "PASSED"}, done.stdout
    section = done.stdout.partition(" compile report ")[2].partition("\n=")[0]
    rows = (line for line in section.splitlines() if line.startswith(" "))
    listed = {line.partition("::")[2] for line in rows}
    compiled = EXPECTED.keys() - {"test_nothing", "test_another_backend_is_left_alone"}
    assert listed == compiled
    reports = [json.loads(path.read_text()) for path in (tmp_path / "reports").iterdir()]
    breaks = [one["summary"]["graph_breaks"] for one in reports]
    assert sorted(breaks) == [0] * (len(compiled) - len(BREAK)) + [1] * len(BREAK)
    assert "instrumented:" not in done.stderr


@pytest.mark.full
def test_a_backend_that_is_off_keeps_no_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INSTRUMENTED_DISABLE", "1")
    done = run(tmp_path, "-k", "test_good or another_backend")
    assert outcomes(done.stdout)["test_good"] == "FAILED"
    assert "with INSTRUMENTED_DISABLE=1 nothing is observed" in done.stdout
    assert outcomes(done.stdout)["test_another_backend_is_left_alone"] == "PASSED"
