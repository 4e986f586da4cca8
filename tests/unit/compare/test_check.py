"""Limits: which are kept, what is said of those that are not, and what is no limit at all."""

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from made_reports import eager, graph, graph_break, kernel, recompile, report, skipped

from instrumented_backend import commands
from instrumented_backend.compare.baseline import baseline_of, known_ops
from instrumented_backend.compare.checking import KEPT, MISSED, UNDECIDED, Finding, check
from instrumented_backend.compare.figures import FIGURES
from instrumented_backend.compare.limits import Limits, Slack
from instrumented_backend.records import Report
from instrumented_backend.views.check import as_github, sentence
from instrumented_backend.views.check_files import as_junit, as_sarif

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """The command, in a folder of the test's own: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["instrumented-backend", *map(str, arguments)])
        code = 0
        try:
            commands.main()
        except SystemExit as end:
            code = int(end.code or 0)
        return code, *capfd.readouterr()

    return call


def status(given: Report, **limits: float) -> list[str]:
    return [finding.status for finding in check(given, Limits(absolute=limits))]


def against(before: Report, after: Report, **allowed: Slack) -> dict[str, Finding]:
    baseline = baseline_of([before], allowed)
    findings = check(after, Limits(allowed=allowed), baseline.ranks["0"])
    return {finding.figure: finding for finding in findings}


def missed(before: Report, after: Report) -> list[str]:
    found = against(before, after)
    return [name for name, finding in found.items() if finding.status == MISSED]


# --- Absolute -----------------------------------------------------------------------------------


def test_at_most_and_at_least() -> None:
    given = report(graph(), graph_break(), eager(count=40), captured=60)
    assert status(given, graph_breaks=1) == [KEPT]
    assert status(given, graph_breaks=0) == [MISSED]
    assert status(given, captured_ops_pct=60) == [KEPT]
    assert status(given, captured_ops_pct=60.1) == [MISSED]
    # The same figures for one function.
    limits = Limits(functions={"f": {"graph_breaks": 0, "graphs": 1}, "g": {"graphs": 1}})
    found = check(given, limits)
    assert [finding.status for finding in found] == [MISSED, KEPT, MISSED]
    assert found[2].note == "not known: nothing of g was compiled; there is: f"


def test_a_sampled_figure_counts_with_its_spread() -> None:
    given = report(eager(count=40), captured=60, status="sampled", spread=5.0)
    assert status(given, captured_ops_pct=66) == [MISSED]
    assert status(given, captured_ops_pct=64) == [UNDECIDED]
    assert status(given, captured_ops_pct=56) == [KEPT]


def test_what_is_not_known_is_not_kept() -> None:
    given = report()
    given.summary.pct_ops = None
    given.ops.note = "the op meter was not there"
    (finding,) = check(given, Limits(absolute={"captured_ops_pct": 1}))
    assert finding.status == MISSED
    assert finding.note == "not known: the op meter was not there"


def test_every_figure_can_be_read_and_limited() -> None:
    """By hand: two graphs, three generated kernels of 64 bytes, one called twice; an extern one."""
    given = report(
        *(graph(0), graph(1, "g", cache="bypass"), graph_break(), skipped(), recompile(count=2)),
        *(kernel(0, "add"), kernel(0, "mul", calls=2), kernel(1, "sin")),
        kernel(1, "mm", name="extern_kernels.mm", language="extern"),
        eager(count=40),
    )
    values = {name: figure.read(given).value for name, figure in FIGURES.items()}
    expected = {
        "graph_breaks": 2,
        "skipped_functions": 1,
        "uncompiled": 0,
        "recompiles": 2,
        "graphs": 2,
        "kernels": 3,
        "extern_kernels": 1,
        "kernel_bytes": 5 * 64,
        "eager_ops": 40,
        "captured_ops_pct": 60.0,
        "captured_time_pct": 90.0,
        "cache_misses": 1,
        "cache_bypasses": 1,
        "compile_s": 5.0,
        "recompile_s": None,
        "wall_s": 10.0,
    }
    assert {name: values[name] for name in expected} == expected
    assert {name for name in values if name not in expected} == {
        f"ledger_{row}_pct"
        for row in ("startup", "compile", "captured", "eager_ops", "data", "python")
    }


# --- Against a baseline -------------------------------------------------------------------------


def test_ops_of_a_baseline() -> None:
    """Whose name has what parts a key, as an operator of the program's own may; and an old file."""
    made = report(graph(), kernel(0, "add", "mul"), kernel(1, name="a | b + c", language="extern"))
    known = baseline_of([made]).ranks["0"]
    assert known_ops(known) == {"aten.add", "aten.mul", "a | b + c"}
    plain = baseline_of([report(graph(), kernel(0, "add", "mul"))]).ranks["0"]
    plain.kernel_ops = None
    assert known_ops(plain) == {"aten.add", "aten.mul"}


BEFORE = (graph(), kernel(0, "add", lines=(11,)), eager(count=10))


def test_the_same_again_cold_or_warm_and_at_another_speed() -> None:
    before = report(graph(), kernel(0, "add"), graph_break(14), eager(), compile_s=1.0)
    again = report(graph(line=12), kernel(0, "add"), graph_break(16), eager(), compile_s=90.0)
    assert missed(before, again) == []
    warm = report(graph(), kernel(0, "add"), graph_break(14), eager(), warm=True)
    assert missed(before, warm) == missed(warm, before) == []


@pytest.mark.parametrize(
    ("more", "figures", "line"),
    [
        ((graph_break(14),), ["graph_breaks"], 14),
        ((skipped(line=20),), ["graph_breaks", "skipped_functions"], 22),
        ((recompile(line=10),), ["recompiles"], 10),
        ((graph(1, "g", 50),), ["graphs"], 50),
        ((kernel(0, "mul", lines=(12,)),), ["kernels", "kernel_bytes"], 12),
        ((eager("aten::sqrt", 31, count=50),), ["captured_ops_pct"], 31),
    ],
    ids=["break", "skipped", "recompile", "graph", "kernel", "eager"],
)
def test_what_is_worse_is_found_with_its_line(
    more: tuple[object, ...], figures: list[str], line: int
) -> None:
    found = against(report(*BEFORE), report(*BEFORE, *more))
    assert [name for name, one in found.items() if one.status == MISSED] == figures
    assert {found[name].guilty[0].line for name in figures} == {line}


def test_only_what_is_new_is_blamed() -> None:
    """The break that the baseline has has moved to line 15; the new one is on line 40."""
    old, new = graph_break(14), graph_break(40, source="x.item()", eager_time_us=1.0)
    (found,) = against(report(old), report(graph_break(15), new))["graph_breaks"].guilty
    assert found.line == 40


def test_the_kernels_that_grew_are_blamed_for_their_bytes() -> None:
    before = report(*BEFORE, kernel(0, "sin", lines=(12,)))
    after = report(*BEFORE, kernel(0, "sin", lines=(12,), total_bytes=640))
    (one,) = against(before, after)["kernel_bytes"].guilty
    assert one.line == 12


def test_a_difference_too_small_for_the_unit_is_said_exactly() -> None:
    """Where "12.5 KB, at most 12.5 KB" would say nothing."""
    before = report(graph(), kernel(0, "add", total_bytes=12544))
    after = report(graph(), kernel(0, "add", total_bytes=12548))
    said = sentence(against(before, after)["kernel_bytes"])
    assert said == "kernel_bytes is 12,548, at most 12,544 bytes (the baseline)"


def test_a_kernel_without_a_line_is_blamed_last() -> None:
    """Calls that a lowering made have none; the kernel that came with them has."""
    call = kernel(0, name="extern_kernels.mm", language="extern")
    cast = kernel(0, "_to_copy", lines=(15,), direction="forward")
    back = kernel(0, "mul", lines=(16,), direction="backward")
    found = against(report(*BEFORE), report(*BEFORE, call, back, cast))["kernels"].guilty
    assert [item.line for item in found] == [15, 16, 10]  # 10: where the function begins


def test_bytes_that_are_known_otherwise_than_in_the_baseline_are_undecided() -> None:
    before = report(graph(), kernel(0, "add", bytes_source="inductor"))
    after = report(graph(), kernel(0, "add", total_bytes=66, bytes_source="estimated"))
    found = against(before, after)["kernel_bytes"]
    assert (found.status, found.note) == (UNDECIDED, "estimated now, exact in the baseline")
    assert missed(after, after) == []


def test_a_baseline_that_was_sampled_counts_with_its_spread() -> None:
    """60 of 100 ops, ± 5 points; then 60 of 107 to the last one: 56.1 %."""
    sampled = report(eager(count=40), status="sampled", spread=5.0)
    found = against(sampled, report(eager(count=47)))["captured_ops_pct"]
    assert (found.status, found.spread) == (UNDECIDED, 5.0)
    assert missed(sampled, report(eager(count=60))) == ["captured_ops_pct"]  # 50 %
    assert missed(report(eager(count=40)), report(eager(count=47))) == ["captured_ops_pct"]


def test_slack() -> None:
    kernels = [kernel(0, f"op{number}") for number in range(20)]
    before, after = report(graph(), *kernels), report(graph(), *kernels, kernel(0, "more"))
    assert missed(before, after) == ["kernels", "kernel_bytes"]
    found = against(before, after, kernels=Slack(share=0.05), kernel_bytes=Slack(amount=64))
    assert [one.status for one in found.values()].count(MISSED) == 0
    # compile_s is compared where it is named: 5 s, and at most 10 % more.
    slow = report(graph(), *kernels, compile_s=6.0)
    found = against(before, slow, compile_s=Slack(share=0.1))
    assert found["compile_s"].limit == 5.5 and found["compile_s"].status == MISSED
    # 60 of 100 ops were captured, now 60 of 101: within the point that is always spared.
    assert missed(report(eager(count=40)), report(eager(count=41))) == []


def test_better_than_the_baseline_is_said(tmp_path: Path, run: Run) -> None:
    (tmp_path / "a.json").write_text(report(graph_break()).to_json())
    (tmp_path / "b.json").write_text(report().to_json())
    assert run("check", "a.json", "--baseline", "base.json", "--update")[0] == 0
    code, out, _ = run("check", "b.json", "--baseline", "base.json")
    assert code == 0 and "better than the baseline: graph_breaks; --update holds it" in out


def test_a_figure_that_cannot_be_compared_is_undecided() -> None:
    before = report(*BEFORE)
    after = report(graph(), kernel(0, "add", total_bytes=None), eager(count=10))
    found = against(before, after)["kernel_bytes"]
    assert found.status == UNDECIDED
    assert found.note == "not known now: the bytes of 1 kernels are not known"


# --- The command --------------------------------------------------------------------------------


def test_exit_codes_and_what_is_said(tmp_path: Path, run: Run) -> None:
    (tmp_path / "r.json").write_text(report(graph(), graph_break()).to_json())
    code, out, err = run("check", "r.json", "--limit", "graph_breaks=1")
    assert (code, err) == (0, "") and out.endswith("0 of 1 limit missed\n")
    code, out, _ = run("check", "r.json", "--limit", "graph_breaks=0", "--limit", "graphs=1")
    assert code == 1
    assert "MISSED graph_breaks is 1, at most 0 (--limit)" in out
    assert '.../me/model.py:14 `print("hello")`: graph break in f' in out
    assert "try: Avoid calling it." in out
    assert out.endswith("kept 1 limit: graphs 1\n1 of 2 limits missed\n")
    _, out, _ = run("check", "r.json", "--limit", "graphs=1", "--explain")
    assert "it counts: FX graphs that Dynamo captured; exact" in out


def test_limits_in_pyproject(tmp_path: Path, run: Run) -> None:
    (tmp_path / "r.json").write_text(report(graph(), graph_break()).to_json())
    (tmp_path / "pyproject.toml").write_text(
        "[tool.instrumented-backend.check]\ngraph_breaks = 0\ngraphs = 0\n"
        '[tool.instrumented-backend.check.functions."f"]\nrecompiles = 0\n'
    )
    code, out, _ = run("check", "r.json")
    assert code == 1 and "2 of 3 limits missed" in out
    # The command line takes precedence over the file.
    code, out, _ = run("check", "r.json", "--limit", "graph_breaks=1", "--limit", "graphs=1")
    assert (code, "0 of 3 limits missed" in out) == (0, True)
    (tmp_path / "other.toml").write_text("graph_breaks = 9\n")
    assert run("check", "r.json", "--config", "other.toml")[0] == 0


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("graph_brakes = 0", "no limit 'graph_brakes'; did you mean graph_breaks? Choose from"),
        ('graph_breaks = "none"', "graph_breaks = 'none': give a number from 0 on"),
        ("graph_breaks = true", "graph_breaks = True: give a number from 0 on"),
        ("graph_breaks = -1", "graph_breaks = -1: give a number from 0 on"),
        ("compile_s = nan", "compile_s = nan: give a number from 0 on"),
        ("baseline = 3", "baseline = 3: give the path of a file"),
        ("functions = 3", "functions: not a table, but 3"),
        ("functions.f.wall_s = 3", "functions.'f': no limit 'wall_s'"),
        ("allow.kernels = '5 apples'", "kernels = '5 apples': give a number, or a share as in"),
        ("graph_breaks = ", "not TOML"),
    ],
)
def test_what_is_no_limit(tmp_path: Path, run: Run, table: str, said: str) -> None:
    (tmp_path / "r.json").write_text(report().to_json())
    (tmp_path / "limits.toml").write_text(table + "\n")
    code, out, err = run("check", "r.json", "--config", "limits.toml")
    assert (code, out) == (2, "")
    assert said in err and err.startswith("instrumented-backend: limits.toml: ")
    assert len(err.splitlines()) == 1


def test_what_cannot_be_checked(tmp_path: Path, run: Run) -> None:
    (tmp_path / "r.json").write_text(report().to_json())
    (tmp_path / "other.json").write_text(report(command="demo.py").to_json())
    (tmp_path / "rank1.json").write_text(report(rank=1).to_json())
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "later.json").write_text('{"baseline_version": 9}')
    (tmp_path / "odd.json").write_text(
        '{"baseline_version": 1, "program": "train.py", "torch": "", "device": 3}'
    )
    run("check", "other.json", "--baseline", "base.json", "--update")
    run("check", "r.json", "--baseline", "mine.json", "--update")
    for arguments, said in (
        (("r.json",), "nothing to check: give --limit or --baseline, or put a table"),
        (("gone.json", "--limit", "graphs=1"), "gone.json: cannot be read"),
        (("r.json", "--limit", "graphs"), "'graphs' is no limit; write it as graph_breaks=0"),
        (("r.json", "--limit", "grafs=1"), "no limit 'grafs'; did you mean graphs?"),
        (("r.json", "--baseline", "gone.json"), "gone.json: no such baseline; --update writes it"),
        (("r.json", "--baseline", "r.json"), "r.json: not a baseline, but a report;"),
        (("r.json", "--baseline", "broken.json"), "broken.json: not a baseline: not JSON"),
        (("r.json", "--baseline", "list.json"), "list.json: not a baseline, but something else"),
        (("r.json", "--baseline", "later.json"), "later.json: baseline_version is 9;"),
        (("r.json", "--baseline", "odd.json"), "odd.json: not a baseline: device: expected str"),
        (
            ("r.json", "--baseline", "base.json"),
            "base.json is of another program: demo.py, and the report of train.py;",
        ),
        (("rank1.json", "--baseline", "mine.json"), "mine.json has no rank 1, but 0;"),
        (("r.json", "--update"), "--update writes the baseline: name it with --baseline"),
        (("r.json", "--update", "--baseline", "no/such\0"), "cannot be"),
        (("r.json", "--config", "gone.toml"), "gone.toml: cannot be read"),
        (("r.json", "--limit", "graphs=1", "-o", "no/such/file"), "no/such/file: cannot be"),
    ):
        code, out, err = run("check", *arguments)
        assert (code, out) == (2, ""), arguments
        assert said in err and len(err.splitlines()) == 1, arguments


def test_two_reports_of_one_rank(tmp_path: Path, run: Run) -> None:
    for number in (1, 2):
        (tmp_path / f"report.rank0.pid{number}.json").write_text(report().to_json())
    code, _, err = run("check", tmp_path, "--limit", "graphs=1")
    assert code == 2 and "two reports of rank 0" in err


def test_each_rank_is_checked(tmp_path: Path, run: Run) -> None:
    for rank in (0, 1):
        one = report(*[graph_break()] * rank, rank=rank)
        (tmp_path / f"report.rank{rank}.pid1.json").write_text(one.to_json())
    code, out, _ = run("check", tmp_path, "--limit", "graph_breaks=0")
    assert code == 1 and "MISSED rank 1: graph_breaks is 1" in out
    assert run("check", tmp_path, "--baseline", "b.json", "--update")[0] == 0
    assert run("check", tmp_path, "--baseline", "b.json")[0] == 0


def test_a_baseline_of_another_torch_is_said(tmp_path: Path, run: Run) -> None:
    (tmp_path / "a.json").write_text(report(torch="2.11.0").to_json())
    (tmp_path / "b.json").write_text(report().to_json())
    run("check", "a.json", "--baseline", "base.json", "--update")
    code, out, _ = run("check", "b.json", "--baseline", "base.json")
    assert code == 0
    assert "note: the baseline was made with torch 2.11.0, this is 2.15.0" in out


def test_a_baseline_has_nothing_that_changes_from_run_to_run(tmp_path: Path) -> None:
    """Or each --update would be a change to review."""
    one = report(graph(), kernel(0, "add", lines=(11,)), graph_break(14), compile_s=1.0)
    other = report(graph(line=20), kernel(0, "add", lines=(21,)), graph_break(24), compile_s=9.0)
    assert baseline_of([one]) == baseline_of([other])


# --- For other programs -------------------------------------------------------------------------

EVIL = "</failure>\x1b[31m\x00 é 100 %\n::error::no"


def findings(reason: str = EVIL) -> list[Finding]:
    given = report(graph(), graph_break(reason=reason, source="a, b: c"), recompile())
    limits = Limits(absolute={"graph_breaks": 0, "recompiles": 0, "graphs": 1})
    sampled = report(eager(count=40), status="sampled", spread=5.0)
    return check(given, limits) + check(sampled, Limits(absolute={"captured_ops_pct": 64}))


def test_junit() -> None:
    root = ElementTree.fromstring(as_junit("check", findings()).encode())
    (suite,) = root
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("4", "2", "1")
    failure = suite.findall("testcase")[0].find("failure")
    assert failure is not None and failure.text is not None
    assert "model.py:14" in failure.text and "try: Avoid calling it." in failure.text


def test_junit_is_read_by_junitparser() -> None:
    junitparser = pytest.importorskip("junitparser")
    read = junitparser.JUnitXml.fromstring(as_junit("check", findings()).encode())
    (suite,) = read
    assert (read.tests, read.failures, read.skipped, read.errors) == (4, 2, 1, 0)
    results = {case.name: [type(one).__name__ for one in case.result] for case in suite}
    assert results == {
        "graph_breaks": ["Failure"],
        "recompiles": ["Failure"],
        "graphs": [],
        "captured_ops_pct": ["Skipped"],
    }


def test_sarif(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What SARIF 2.1.0 requires of each object that we write, and its types."""
    monkeypatch.chdir("/home")
    log = json.loads(as_sarif("0.1.0", findings()))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"] == "instrumented-backend"
    rules = [rule["id"] for rule in driver["rules"]]
    assert rules == ["graph_breaks", "recompiles"]
    assert len(run["results"]) == 2
    for result in run["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]
        assert result["level"] in ("none", "note", "warning", "error")
        assert isinstance(result["message"]["text"], str) and result["message"]["text"]
        (place,) = result["locations"]
        physical = place["physicalLocation"]
        assert physical["artifactLocation"] == {"uri": "me/model.py", "uriBaseId": "SRCROOT"}
        assert isinstance(physical["region"]["startLine"], int)
        assert all(isinstance(text, str) for text in result["partialFingerprints"].values())
    assert [
        r["locations"][0]["physicalLocation"]["region"]["startLine"] for r in run["results"]
    ] == [
        14,
        10,
    ]
    base = run["originalUriBaseIds"]["SRCROOT"]["uri"]
    assert base == "file:///home/"


def test_annotations(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line each, whatever stands in them; what ends a property is escaped."""
    monkeypatch.chdir("/home")
    lines = as_github(findings()).splitlines()
    assert len(lines) == 2
    assert lines[0].startswith(
        "::error file=me/model.py,line=14,title=graph_breaks%3A limit missed::graph_breaks is 1"
    )
    assert "100 %25%0A::error::no" in lines[0]
    assert lines[1].startswith("::error file=me/model.py,line=10,")
