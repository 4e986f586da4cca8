"""The pytest plugin: what each test compiled, and budgets that a test may set itself.

``--compile-report[=FOLDER]`` lists at the end what each test compiled; with a folder, each of them
leaves its report there. ``compile_report`` is a fixture that sees what its test compiled, and
``@pytest.mark.compile_budget(graph_breaks=0)`` fails a test that compiles worse than that.

pytest imports this module wherever the package is installed: it imports nothing of ours, and no
torch, before a test asks for it.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from instrumented_backend.records import Report

OPTION = "--compile-report"
MARK = "compile_budget"
FIXTURE = "compile_report"
ALIASES = {"captured": "captured_ops_pct", "captured_time": "captured_time_pct"}
MAX_ROWS = 20
_ROW = "compile_report_row"  # of a test's report, which xdist carries from its workers
_PROBLEM = "problem"  # in a row: its report could not be written
_FIGURES = ("graphs", "graph_breaks", "skipped_functions", "recompiles")
_COLUMNS = (*_FIGURES, "kernels")

_NOT_SEEN = (
    "What torch.compile was given when the module was imported is seen with --compile-report, or "
    'with backend="instrumented"'
)

_undo = pytest.StashKey[Callable[[], None]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("instrumented-backend")
    group.addoption(
        OPTION,
        nargs="?",
        const="",
        metavar="FOLDER",
        help="list what each test compiled with Inductor; into FOLDER, a report of each",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{MARK}(graph_breaks=0, recompiles=1, captured=95, ...): what the test may compile to, "
        "at most; captured, in percent of all ops, at least",
    )
    folder = config.getoption(OPTION)
    if folder is not None:
        _check_folder(folder, config.invocation_params.args)
        config.pluginmanager.register(_Listing(config, folder), "instrumented-backend-listing")


def _check_folder(folder: str, arguments: Sequence[object]) -> None:
    """Raises UsageError: ``--compile-report tests`` means the tests, and pytest reads a folder."""
    words = [str(argument) for argument in arguments]
    if folder and [OPTION, folder] in [words[i : i + 2] for i in range(len(words))]:
        raise pytest.UsageError(
            f"{OPTION} {folder}: write {OPTION}={folder} to have reports there; put {OPTION} last "
            "to test what follows"
        )
    if folder and os.path.exists(folder) and not os.path.isdir(folder):
        raise pytest.UsageError(f"{OPTION}={folder}: not a folder")


# --- One test -----------------------------------------------------------------------------------


@pytest.fixture
def compile_report(request: pytest.FixtureRequest) -> CompileReport:
    """What this test has compiled so far: ``compile_report()`` is an `instrumented_backend` Report.

    Its attributes are the report's, as of then: ``compile_report.summary.graph_breaks``.
    """
    return CompileReport()


class CompileReport:
    """The report of the test that is running, taken anew each time it is asked."""

    def __call__(self) -> Report:
        return _report()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(_report(), name)

    def check(self, **budget: float) -> None:
        """Fail the test here unless it has kept to the budget so far."""
        __tracebackhide__ = True
        exceeded, _ = _exceeded(_named(budget))
        if exceeded:
            pytest.fail(exceeded, pytrace=False)


def _budget(item: pytest.Item) -> dict[str, float] | None:
    """None where it has none; a mark nearer to the test takes precedence over one of its module.

    Fails the test where a mark is none.
    """
    marks = list(item.iter_markers(MARK))
    budget: dict[str, float] = {}
    for mark in reversed(marks):
        if mark.args or not mark.kwargs:
            pytest.fail(f"{MARK} takes names: {MARK}(graph_breaks=0)", pytrace=False)
        budget.update(_named(mark.kwargs))
    return budget if marks else None


def _named(budget: Mapping[str, Any]) -> dict[str, float]:
    """By the names of the figures; fails the test where there is no such figure."""
    from instrumented_backend.compare.limits import CheckError, check_limit

    wrong = ""
    named = {}
    for name, value in budget.items():
        figure = ALIASES.get(name, name)
        try:
            named[figure] = check_limit(figure, value, MARK)
        except CheckError as error:
            wrong = str(error)
    if wrong:
        pytest.fail(wrong, pytrace=False)
    return named


def _asks(item: pytest.Item) -> bool:
    has_fixture = FIXTURE in getattr(item, "fixturenames", ())
    return has_fixture or item.get_closest_marker(MARK) is not None


@pytest.hookimpl(wrapper=True, trylast=True)  # before the fixtures, and after pytest's own
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    if _asks(item):
        _budget(item)
        item.stash[_undo] = _adopt()
        # The test is to see what it compiles, whatever was compiled in this process before it.
        import torch

        import instrumented_backend

        torch.compiler.reset()
        instrumented_backend.reset()
    return (yield)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    result = yield
    budget = _budget(item)
    if budget is not None:
        exceeded, undecided = _exceeded(budget)
        if undecided:
            item.add_report_section("call", "compile budget", undecided)
        if exceeded:
            pytest.fail(exceeded, pytrace=False)
    return result


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when == "teardown" and _undo in item.stash:
        item.stash[_undo]()
        del item.stash[_undo]
        _forget()
    return report


def _adopt() -> Callable[[], None]:
    """Have Inductor's compilations come to this backend; it waits for Dynamo's own import.

    pytest shows what there is to show: unless it is asked for, no summary follows at exit.
    """
    from instrumented_backend import adoption, settings

    silenced = "INSTRUMENTED_TABLES" not in os.environ
    try:
        if silenced:
            os.environ["INSTRUMENTED_TABLES"] = "none"
        settings.of_process()
    except settings.SettingsError as error:
        raise pytest.UsageError(str(error)) from None
    finally:
        if silenced:
            del os.environ["INSTRUMENTED_TABLES"]
    return adoption.adopt()


def _report() -> Report:
    import instrumented_backend

    return instrumented_backend.report()


def _forget() -> None:
    """What was observed so far is no other test's."""
    backend = sys.modules.get("instrumented_backend.backend")
    if backend is not None:
        backend.reset()


def _exceeded(budget: dict[str, float]) -> tuple[str, str]:
    """What is said of a budget that was not kept, and of what could not be decided."""
    from instrumented_backend import settings
    from instrumented_backend.compare.checking import MISSED, UNDECIDED, check
    from instrumented_backend.compare.limits import Limits
    from instrumented_backend.records.compiled import NEVER_CALLED
    from instrumented_backend.views.check import budget_text

    if settings.of_process().disable:
        return "compile budget: with INSTRUMENTED_DISABLE=1 nothing is observed", ""
    report = _report()
    was_called = any(record.outcome != NEVER_CALLED for record in report.compiled)
    if not (report.graphs or report.breaks or was_called):
        return f"compile budget: this test compiled nothing with Inductor. {_NOT_SEEN}", ""
    if any(graph.compiled is None and graph.direction == "forward" for graph in report.graphs):
        # They reach us through Inductor alone; Dynamo's breaks in them do not.
        return f"compile budget: the graph breaks of some graphs cannot be seen. {_NOT_SEEN}", ""
    findings = check(report, Limits(absolute=budget, where=MARK))
    return tuple(  # type: ignore[return-value]
        budget_text([one for one in findings if one.status == status])
        for status in (MISSED, UNDECIDED)
    )


# --- All tests ----------------------------------------------------------------------------------


class _Listing:
    """``--compile-report``: registered where it is asked for, in xdist's workers, too."""

    def __init__(self, config: pytest.Config, folder: str) -> None:
        self._folder = Path(config.invocation_params.dir, folder) if folder else None
        self._rows: dict[str, dict[str, Any]] = {}
        # For what is compiled when a module is imported, too.
        self._undo = _adopt()

    def pytest_unconfigure(self) -> None:
        self._undo()
        _forget()

    def pytest_collection_finish(self) -> None:
        _forget()  # what modules compile when they are imported is no test's

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        row = self._row(item) if call.when == "teardown" else None
        if row is not None:
            setattr(report, _ROW, row)  # what a report has, xdist carries to where it is shown
        return report

    def _row(self, item: pytest.Item) -> dict[str, Any] | None:
        """What a test compiled, as plain data; None where it compiled nothing."""
        backend = sys.modules.get("instrumented_backend.backend")
        if backend is None:
            return None
        report = backend.figures() if self._folder is None else backend.report()
        backend.reset()
        if not (report.graphs or report.breaks):
            return None
        from instrumented_backend.compare.figures import FIGURES

        row: dict[str, Any] = {name: FIGURES[name].read(report).value for name in _FIGURES}
        names = (code.kernels for graph in report.graphs for code in graph.code)
        row["kernels"] = sum(map(len, names))
        row["compile_s"] = report.compile.total_s
        if self._folder is not None:
            row[_PROBLEM] = _write(report, self._folder, item.nodeid)
        return row

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        row = getattr(report, _ROW, None)
        if row is not None:
            self._rows[report.nodeid] = row

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.section("compile report")
        if not self._rows:
            terminalreporter.write_line("no test compiled anything with Inductor")
            return
        rows = sorted(self._rows.items(), key=lambda row: -row[1]["compile_s"])
        terminalreporter.write_line(
            "compile (s)  graphs  breaks  skipped  recompiles  kernels  test"
        )
        for nodeid, row in rows[:MAX_ROWS]:
            widths = zip(_COLUMNS, (6, 6, 7, 10, 7), strict=True)
            cells = "  ".join(f"{row[name]:{width}.0f}" for name, width in widths)
            terminalreporter.write_line(f"{row['compile_s']:11.2f}  {cells}  {nodeid}")
        if len(rows) > MAX_ROWS:
            terminalreporter.write_line(f"... and {len(rows) - MAX_ROWS} more tests that compiled")
        if self._folder is None:
            return
        problems = [row[_PROBLEM] for _, row in rows if row.get(_PROBLEM)]
        if problems:
            terminalreporter.write_line(
                f"reports of {len(problems)} tests could not be written: {problems[0]}"
            )
        else:
            terminalreporter.write_line(f"reports of all {len(rows)} are in {self._folder}")


def _write(report: Report, folder: Path, nodeid: str) -> str | None:
    """Says what went wrong: a full disk fails nobody's tests."""
    from instrumented_backend.records.whole_file import write_whole

    name = re.sub(r"[^\w.\[\]-]+", "_", nodeid, flags=re.ASCII)[-150:]
    digest = hashlib.sha256(nodeid.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    try:
        write_whole(folder / f"{name}.{digest}.json", report.to_json())
    except (OSError, ValueError) as error:  # ValueError: no name that a folder can have
        return f"{folder}: {getattr(error, 'strerror', None) or error}"
    return None
