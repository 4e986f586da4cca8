"""The suite itself: nothing asserts on a clock, and each test is in one folder."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from clocks import clocks_in
from paths import TESTS

FOLDERS = ("gpu", "programs", "unit")
MODULES = sorted(
    path.relative_to(TESTS)
    for path in TESTS.rglob("*.py")
    if path.relative_to(TESTS).parts[0] not in ("data", "support")
)


def misplaced(modules: Iterable[tuple[Path, str]]) -> list[str]:
    """Modules with tests that pytest would not collect, or that are in no folder of the three."""
    return [
        str(path)
        for path, source in modules
        if any(map(_is_test, ast.walk(ast.parse(source))))
        and not (len(path.parts) > 1 and path.parts[0] in FOLDERS and path.match("test_*.py"))
    ]


def _is_test(node: ast.AST) -> bool:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return isinstance(node, functions) and node.name.startswith("test_")


def test_each_test_is_in_one_folder() -> None:
    found = [(path.relative_to(TESTS), path.read_text()) for path in TESTS.rglob("*.py")]
    assert len(found) > 100
    assert misplaced(found) == []


def test_a_test_in_no_folder_is_found() -> None:
    source = "def test_it():\n    assert True\n"
    assert misplaced(
        [
            (Path("unit/test_a.py"), source),
            (Path("unit/traces/test_b.py"), source),
            (Path("unit/helpers.py"), "def helps(): ..."),
            (Path("test_c.py"), source),
            (Path("support/test_d.py"), source),
            (Path("unit/e.py"), "class TestE:\n    def test_it(self): ..."),
        ]
    ) == ["test_c.py", "support/test_d.py", "unit/e.py"]


def test_no_test_reads_a_clock() -> None:
    """What it takes is a benchmark's. Programs in strings are looked into, too."""
    assert len(MODULES) > 90
    found = {str(path): clocks_in((TESTS / path).read_text()) for path in MODULES}
    assert {path: clocks for path, clocks in found.items() if clocks} == {}


# Not written out, so that this module itself has none.
@pytest.mark.parametrize("clock", ["perf_counter", "monotonic", "time", "process_time", "time_ns"])
@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("import time\nassert time.CLOCK() < 3", 2),
        ("import time as t\n\nstart = t.CLOCK()", 3),
        ("from time import CLOCK\n", 1),
        ("PROGRAM = '''\n    import time\n    print(time.CLOCK())\n'''", 1),
        ("x = 1\nrun(f'''\n{before}\nstart = time.CLOCK()\n''')", 2),
        ("run('''\nfor {name} in:  # a template\n    time.CLOCK()\n''')", 1),
        ("def f(clock=time.CLOCK): ...", 1),
    ],
)
def test_a_clock_is_found(source: str, line: int, clock: str) -> None:
    assert clocks_in(source.replace("CLOCK", clock)) == [f"{line}: time.{clock}"]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import timers", "1: timers"),
        ("from timers import repeat", "1: timers.repeat"),
        ("from torch.utils import benchmarks", "1: torch.utils.benchmarks"),
        ("from triton.testing import do_benches", "1: triton.testing.do_benches"),
        ("ms = triton.testing.do_benches(f)", "1: testing.do_benches"),
        ("run('from triton.testing import do_benches')", "1: triton.testing.do_benches"),
    ],
)
def test_what_times_is_found(source: str, found: str) -> None:
    names = {"timers": "timeit", "benchmarks": "benchmark", "do_benches": "do_bench"}
    for written, meant in names.items():
        source, found = source.replace(written, meant), found.replace(written, meant)
    assert clocks_in(source) == [found]


@pytest.mark.parametrize(
    "source",
    [
        "import time\ntime.sleep(0.1)",
        "time = analyse()\nassert time.window_us == 100",
        '"""Its time, by perf_counter and do_bench."""',
        "assert record.time_us > 0",
    ],
)
def test_what_is_no_clock(source: str) -> None:
    assert clocks_in(source) == []


def test_what_the_shell_has_set_is_not_inherited() -> None:
    """Of a suite that is started in such a shell, by its children and by itself."""
    shell = {"COLUMNS": "80", "PYTHONWARNINGS": "error", "INSTRUMENTED_OPS": "off"}
    tells = "import conftest, os; print([name for name in %r if name in os.environ])" % [*shell]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", tells],
        cwd=TESTS,
        env={**os.environ, **shell, "PYTHONPATH": f"{TESTS}:{TESTS / 'support'}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
