"""Reports, limits, names and places that nobody would write: each ends in a view or in a line."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from every_view import commands, looked_at, run, watch
from fuzzing import CONTROLS
from sample_report import sample_on_gpu

from instrumented_backend import commands as commands_module
from instrumented_backend.bench.generated import kind_of
from instrumented_backend.commands import processes
from instrumented_backend.commands.targets import NoTarget, target
from instrumented_backend.compare.functions import base, is_resumed, resumed_at
from instrumented_backend.kernels.graph_module import ParseError
from instrumented_backend.records import bounded
from instrumented_backend.records.escapes import shown_lines
from instrumented_backend.records.follow import Follower
from instrumented_backend.records.places import place
from instrumented_backend.views.page.texts import Reading, TooMuch
from instrumented_backend.views.top.watched import Watched

Document = dict[str, Any]
HOSTILE = (
    "\n::error file=/etc/passwd::x ##[error] ##vso[task] ]]> <script>alert(1)</script> [red]x[/red]"
    " [link=a]b\x1b[31m\ud800\udc80\x00\u202e{{7*7}} `a` |b| =1+1\n::add-mask::a"
)


def everywhere(value: Any, of: type, given: Any) -> Any:
    """``given`` in the place of everything of a type."""
    if isinstance(value, dict):
        return {key: everywhere(item, of, given) for key, item in value.items()}
    if isinstance(value, list):
        return [everywhere(item, of, given) for item in value]
    return given if type(value) is of else value


def changed(document: Document, **fields: Any) -> Document:
    """In every record that has one of the fields."""
    for value in document.values() if isinstance(document, dict) else document:
        if isinstance(value, dict | list):
            changed(value, **fields)  # type: ignore[arg-type]
    if isinstance(document, dict):
        document.update({name: value for name, value in fields.items() if name in document})
    return document


def numbers(whole: int, real: float) -> Callable[[Document], Document]:
    def change(document: Document) -> Document:
        version = document["schema_version"]
        document = everywhere(everywhere(document, int, whole), float, real)
        return {**document, "schema_version": version}

    return change


def under_way(document: Document) -> Document:
    """Written while the program ran, at no time of ours."""
    document["run"].update(status="running", seen_at=1e300, started="0001-01-01")
    document["compiling"] = [
        {
            "compile_id": "0/0",
            "function": "f",
            "file": "a.py",
            "line": 1,
            "since_at": at,
            "why": "x",
        }
        for at in (1e300, -1e300)
    ]
    return document


def many_causes(document: Document) -> Document:
    """Each would look through all the others."""
    again, graph = document["recompiles"][0], document["graphs"][0]
    guard = {**again["guards"][0], "cure": "c", "kind": "int", "decided_s": 1.0}
    document["recompiles"] = [
        {**again, "line": i, "function": f"f{i}", "guards": [guard]} for i in range(500)
    ]
    document["graphs"] = [
        {**graph, "graph": i, "compile_id": f"{i}/0", "function": f"f{i}"} for i in range(500)
    ]
    return document


def lines_of_nothing(document: Document) -> Document:
    for line in document["lines"]:
        line.update(breaks=[99, -99], guards=[99, -99], kernels=[99, -99], graphs=[99, -99])
    return document


def one_without_a_number(document: Document) -> Document:
    document["graphs"] += [{**document["graphs"][0], "graph": None}]
    return document


def many_columns(document: Document) -> Document:
    document["compile"]["compilations"][0]["phases_s"] = {f"p{i}_s": 1.0 for i in range(20_000)}
    return document


CASES: dict[str, Callable[[Document], Document]] = {
    "a line in other digits": lambda d: changed(d, source_lines=["a.py:²", "a.py:٣"]),
    "a line of 5,000 digits": lambda d: changed(d, source_lines=[f"a.py:{'9' * 5000}"]),
    "a line before the first": lambda d: changed(d, line=-5),
    "resumed at 5,000 digits": lambda d: changed(
        d, function=f"torch_dynamo_resume_in_f_at_{'9' * 5000}"
    ),
    "resumed 2,000 times": lambda d: changed(
        d, function=f"{'torch_dynamo_resume_in_' * 2000}f{'_at_1' * 2000}"
    ),
    "a path that is no text": lambda d: changed(d, file="/a\ud800.py", source="\udfff"),
    "the largest numbers": numbers(2**63 - 1, 1.7e308),
    "the smallest numbers": numbers(-(2**63) + 1, -1.7e308),
    "zero": numbers(0, -0.0),
    "text that is more than text": lambda d: everywhere(d, str, HOSTILE),
    "no text": lambda d: everywhere(d, str, ""),
    "a reason of many words": lambda d: changed(d, reason="x " * 100_000),
    "a name of a million letters": lambda d: changed(d, kernel_name="x" * 1_000_000),
    "numbers of what is not there": lines_of_nothing,
    "one graph of two without a number": one_without_a_number,
    "under way at no time": under_way,
    "many causes": many_causes,
    "many columns": many_columns,
}


@pytest.fixture
def places(tmp_path: Path) -> Iterator[tuple[Path, Path, Path]]:
    """A report to change, one to compare with, a folder."""
    report, other = tmp_path / "report.json", tmp_path / "other.json"
    other.write_text(sample_on_gpu().to_json())
    yield report, other, tmp_path


@pytest.mark.parametrize("name", CASES)
def test_every_command(name: str, places: tuple[Path, Path, Path]) -> None:
    report, other, folder = places
    report.write_text(json.dumps(CASES[name](json.loads(sample_on_gpu().to_json()))))
    for arguments in commands(report, other, folder):
        said = run(arguments)
        assert not CONTROLS.search(said), arguments
        if arguments[0] == "show" or arguments[-1] == "text" or "markdown" in arguments:
            lines = said.splitlines()
            assert not [line for line in lines if line.lstrip().startswith("::")], arguments
            assert "##[" not in said, arguments
        if "junit" in arguments:
            ElementTree.fromstring(said)
        if arguments[-1] == "json" or "sarif" in arguments:
            json.loads(said)
        if arguments[-1] == "html":
            assert "<script>alert" not in said
    page = (folder / "page.html").read_text()
    assert "<script>alert" not in page
    assert not CONTROLS.search(watch(report).replace("\r", ""))


def test_annotations_hold_one_command_a_line(places: tuple[Path, Path, Path]) -> None:
    report, _, _ = places
    document = everywhere(json.loads(sample_on_gpu().to_json()), str, HOSTILE)
    report.write_text(json.dumps(document))
    said = run(["check", str(report), "--limit", "graph_breaks=0", "--format", "github"])
    lines = said.splitlines()
    assert lines and all(line.startswith("::error file=") for line in lines)
    # A property ends at a comma or at "::", and has none of its own.
    for line in lines:
        properties = line.removeprefix("::error ").partition("::")[0].split(",")
        assert [one.partition("=")[0] for one in properties] == ["file", "line", "title"], line


# --- Text and places ------------------------------------------------------------------------------


def test_places() -> None:
    assert place("a.py:12") == ("a.py", 12)
    assert place("c:/a.py") == ("c:/a.py", None)
    for text in ("a.py:²", f"a.py:{'9' * 19}", "a.py:", "a.py:-1", "a.py:1_0", "12"):
        assert place(text) == (text, None)


def test_names_of_resumed_functions() -> None:
    twice = "torch_dynamo_resume_in_torch_dynamo_resume_in_f_at_1_at_22"
    assert (base(twice), resumed_at(twice)) == ("f", 22)
    assert (base("torch_dynamo_resume_in_f_at_14"), base(None)) == ("f", "?")
    assert base("torch_dynamo_resume_in_look_at_1_at_2") == "look_at_1"
    for name in ("torch_dynamo_resume_in__at_1", "torch_dynamo_resume_in_f", "f_at_1"):
        assert (base(name), is_resumed(name)) == (name, False)


def test_a_log_takes_no_text_for_a_command() -> None:
    assert shown_lines("a\n  ::error::b\n::c ::d") == "a\n  \\x3a:error::b\n\\x3a:c ::d"
    assert shown_lines("##[error] ##vso[x] ## Heading [y] #[z]") == (
        "\\x23#[error] \\x23#vso[x] ## Heading [y] #[z]"
    )


def test_a_terminal_that_has_few_characters(places: tuple[Path, Path, Path]) -> None:
    report, _, _ = places
    document = changed(json.loads(sample_on_gpu().to_json()), reason="é → \u65e5")
    report.write_text(json.dumps(document))
    done = subprocess.run(
        [sys.executable, "-m", "instrumented_backend", "show", str(report)],
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
        capture_output=True,
        encoding="latin-1",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert r": é \u2192 \u65e5" in done.stdout


def test_a_page_for_nobody(places: tuple[Path, Path, Path]) -> None:
    report, other, _ = places
    report.write_text(other.read_text())
    words = [sys.executable, "-m", "instrumented_backend", "report", str(report), "-o", "-"]
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *words], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# --- Files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "filler", ["[],", "{},", '"ab",', '{"a":1},', "[[[[[[]]]]]],", '"\U0001f600",']
)
def test_what_would_not_fit_into_memory(
    filler: str, places: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the file's objects would take is reckoned before they are made."""
    report, _, _ = places
    text = sample_on_gpu().to_json().rstrip()[:-1]
    report.write_text(f'{text}, "more": [{filler * 200_000}0]}}')
    monkeypatch.setattr(bounded, "MAX_MEMORY", 10_000_000)
    for arguments in (["show", str(report)], ["check", str(report), "--limit", "graphs=1"]):
        assert run(arguments).endswith("it would take more than 10 MB")
    assert "it would take more than 10 MB" in watch(report)


@pytest.mark.parametrize("option", ["diff", "check", "report", "baseline"])
def test_a_planted_link_is_not_followed(option: str, places: tuple[Path, Path, Path]) -> None:
    report, other, folder = places
    report.write_text(other.read_text())
    precious, planted = folder / "precious", folder / "planted"
    precious.write_text("precious")
    planted.symlink_to(precious)
    run(
        {
            "diff": ["diff", str(report), str(other), "-o", str(planted)],
            "check": ["check", str(report), "--limit", "graphs=9", "-o", str(planted)],
            "report": ["report", str(report), "-o", str(planted)],
            "baseline": ["check", str(report), "--baseline", str(planted), "--update"],
        }[option]
    )
    assert precious.read_text() == "precious"
    assert not planted.is_symlink() and planted.stat().st_size > 0
    assert not list(folder.glob(".*"))


def test_an_open_file_is_written_into(places: tuple[Path, Path, Path]) -> None:
    """As /dev/stdout and the shell's ``>(...)`` are; a device would be replaced by a file else."""
    report, other, _ = places
    report.write_text(other.read_text())
    read, write = os.pipe()
    with open(read, "rb") as pipe:
        assert run(["diff", str(report), str(other), "-o", f"/dev/fd/{write}"]) == ""
        os.close(write)
        assert pipe.read(2) == b"A:"


TOML = {
    "nested": "[" * 100_000,
    "a number of 5,000 digits": "9" * 5000,
    "a hexadecimal one": f"0x{'f' * 5000}",
    "a number that is no float": "1" + "0" * 400,
    "infinity": "inf",
    "no number": "nan",
    "less than nothing": "-1",
    "text": '"\\u0000"',
}


@pytest.mark.parametrize("name", TOML)
@pytest.mark.parametrize("key", ["graph_breaks", "allow.kernels", "functions.f.graphs", "unknown"])
def test_limits(name: str, key: str, places: tuple[Path, Path, Path]) -> None:
    report, other, folder = places
    report.write_text(other.read_text())
    config = folder / "limits.toml"
    config.write_text(f"{key} = {TOML[name]}\n")
    said = run(["check", str(report), "--config", str(config)])
    assert said.startswith(str(config)) and "\n" not in said


def test_limits_that_are_nested_by_their_names(places: tuple[Path, Path, Path]) -> None:
    report, other, folder = places
    report.write_text(other.read_text())
    config = folder / "limits.toml"
    for key in (
        ".".join(["a"] * 5_000),
        f"graph_breaks.{'.'.join(['a'] * 5_000)}",
        "a" * 1_000_000,
    ):
        config.write_text(f"{key} = 1\n")
        assert run(["check", str(report), "--config", str(config)]).startswith(str(config))


def test_an_error_is_one_line_of_a_length_to_read(
    places: tuple[Path, Path, Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, _, folder = places
    baseline = folder / "baseline.json"
    baseline.write_text(json.dumps({"baseline_version": "\n::error::x" * 100_000}))
    arguments = ["check", str(folder / "other.json"), "--baseline", str(baseline)]
    monkeypatch.setattr("sys.argv", ["instrumented-backend", *arguments])
    with pytest.raises(SystemExit):
        commands_module.main()
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and len(said) < 20_000
    assert said.endswith("write it again with --update\n")


def test_names_that_no_file_can_have(tmp_path: Path) -> None:
    for name in ("x" * 5_000, "9" * 5_000):
        with pytest.raises(NoTarget, match="cannot be read: File name too long"):
            target(name)
    assert target("²").paths() == []  # no process's number


def test_a_page_reads_no_more_than_it_has_room_for(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text("k = async_compile.triton('k', '''text''')\n")
    reading = Reading()
    assert reading.kernels(str(file)) == {"k": "text"}
    with pytest.raises(TooMuch):
        for i in range(1_000):  # one file by many names, and the kernel's own files, have no end
            reading.text(f"/proc/./{'./' * i}self/status")
    assert reading.kernels(str(file)) == {"k": "text"}


def test_a_page_that_no_browser_would_open(
    places: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from instrumented_backend.views.page import page

    report, other, folder = places
    report.write_text(other.read_text())
    monkeypatch.setattr(page, "MAX_PAGE", 1000)
    said = run(["report", str(report), "-o", str(folder / "page.html")])
    assert said == "no page: it would have more than 0 MB"
    assert not (folder / "page.html").exists()


@pytest.mark.parametrize("filler", ["a = b\n", "a;", "(),"])
def test_a_module_that_would_not_fit_into_memory(filler: str, tmp_path: Path) -> None:
    """As a syntax tree it takes a hundred times as much as it is long."""
    module = tmp_path / "module.py"
    module.write_text(
        "async_compile = AsyncCompile()\ndef call(args):\n    pass\n" + filler * 1_500_000
    )
    said = run(["kernels", str(module)])
    assert said == f"{module}: more statements than a generated module has"
    with pytest.raises(ParseError, match="more statements"):
        kind_of(module.read_text())


CLOCKS = [-1.7e308, 0.0, 5e-324, 1.0, 1e300, 1.7e308, None]


@pytest.mark.parametrize("first", CLOCKS)
@pytest.mark.parametrize("then", CLOCKS)
def test_a_watched_report_with_any_clock(
    first: float | None, then: float | None, tmp_path: Path
) -> None:
    """Rates, ages and moments of what changes while it is watched."""
    path = tmp_path / "report.rank0.pid1.json"
    known = target(str(tmp_path))
    watched = Watched(known.name, Follower(known.paths, processes.is_alive))
    for number, (at, calls) in enumerate([(first, 0), (then, 2**63 - 1), (first, 5)]):
        document = json.loads(sample_on_gpu().to_json())
        document["run"].update(status="running", seen_at=at, wall_s=then)
        document["summary"]["graph_calls"] = calls
        under_way = {"compile_id": "0/0", "function": "f", "file": "a.py", "line": 1}
        document["compiling"] = [{**under_way, "since_at": then or 0.0}] * (number % 2)
        path.write_text(json.dumps(document))
        os.utime(path, ns=(number, number))
        said = looked_at(watched)
        assert "cannot be read" not in said
        assert not CONTROLS.search(said.replace("\r", "")) and "nan" not in said


# --- Folders --------------------------------------------------------------------------------------


def folder_of(folder: Path, *runs: Document) -> Path:
    for number, fields in enumerate(runs):
        document = json.loads(sample_on_gpu().to_json())
        document["run"].update(fields)
        name = f"report.rank{number}.pid{number + 1}.json"
        (folder / name).write_text(json.dumps(document))
    return folder


def test_more_ranks_than_could_be_counted(tmp_path: Path) -> None:
    ranks = [{"rank": rank, "world_size": 2**62, "job": "x"} for rank in (0, 5)]
    folder = folder_of(tmp_path, *ranks)
    said = run(["show", str(folder)]).replace("\n  ", " ")
    assert f"missing: ranks 1-4, 6-{2**62 - 1} of {2**62} left no report here" in said


@pytest.mark.parametrize("started", ["0001-01-01", "9999-12-31T23:59:59", "\ud800", "", "1" * 9999])
def test_times_that_are_none_of_ours(started: str, tmp_path: Path) -> None:
    """Two of one rank: when they ran decides which run they are of."""
    ranks = [{"rank": 0, "world_size": 2, "job": "x", "started": started} for _ in range(2)]
    folder = folder_of(tmp_path, *ranks)
    assert "instrumented: " in run(["show", str(folder)])
    assert watch(folder)
