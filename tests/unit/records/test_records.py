"""The report file: whole when read again, refused when it is something else."""

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from paths import DATA
from sample_report import sample

from instrumented_backend.records import (
    SCHEMA_VERSION,
    KernelRecord,
    Note,
    Report,
    ReportError,
    SkippedRecord,
    read_report,
)

RECORDED = sorted((DATA / "reports").glob("*.json"))


def test_round_trip() -> None:
    report = sample()
    assert Report.from_json(report.to_json()) == report
    assert json.loads(report.to_json())["schema_version"] == SCHEMA_VERSION == 1


def test_the_sections_of_the_contract() -> None:
    assert set(json.loads(sample().to_json())) == {
        "schema_version",
        "run",
        "summary",
        "graphs",
        "kernels",
        "ops",
        "breaks",
        "recompiles",
        "caches",
        "counters",
        "compile",
        "notes",
        "ledger",
        "note_codes",
        "compiled",
        "next_steps",
        "collectives",
        "lines",
        "files",
        "compiling",
        "gpu",
    }


def with_value(path: list[str | int], value: object) -> bytes:
    """The sample's file with another value at a place."""
    data = at = json.loads(sample().to_json())
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    return json.dumps(data).encode()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not JSON, or cut short"),
        (sample().to_json()[:500].encode(), "not JSON, or cut short"),
        (b"\x80\x81\x82", "not a report"),
        (b"[1, 2]", "not a report"),
        (b'{"traceEvents": []}', "not a report"),
        (b'{"schema_version": 99}', "schema_version is 99; this version reads 1 only"),
        (b'{"schema_version": 1}', "run: missing"),
        (with_value(["compile"], 3), "compile: expected object, got int"),
        (with_value(["ops"], {"status": "exact"}), "ops.observed_pct: missing"),
        (with_value(["graphs", 0, "calls"], "five"), "graphs[0].calls: expected int, got str"),
        (with_value(["graphs", 0, "calls"], True), "graphs[0].calls: expected int, got bool"),
        (with_value(["graphs", 0, "calls"], 1.0), "graphs[0].calls: expected int, got float"),
        (
            with_value(["counters", "graphs", "frames"], {"total": None}),
            "counters.graphs[...][...]: expected int, got null",
        ),
        (
            with_value(["kernels", 0, "size_hints"], "x"),
            "kernels[0].size_hints: expected object | array | null, got str",
        ),
        (with_value(["run", "pid"], 2**64), "a number of more than 64 bits in it: 1844674"),
        (with_value(["run", "wall_s"], float("nan")), "not JSON: NaN is no number"),
        (b'{"schema_version": 1, "x": -Infinity}', "not JSON: -Infinity is no number"),
        (b'{"schema_version": 1, "x": 1e999}', "a number that is too large in it: 1e999"),
        (b'{"schema_version": ' + b"1" * 5000 + b"}", "a number of more than 64 bits in it"),
        (with_value(["schema_version"], "1"), "schema_version: expected int, got str"),
        (b"[" * 100_000, "not JSON, or cut short"),
        (b'{"schema_version": 1, "x": ' + b'{"a":' * 100_000, "not JSON, or cut short"),
    ],
)
def test_what_is_not_a_report(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(content)
    with pytest.raises(ReportError) as error:
        read_report(path)
    message = str(error.value)
    assert message.startswith(f"{path}: ") and said in message and "\n" not in message


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(ReportError, match=f"{path}: cannot be read: "):
            read_report(path)


def test_a_report_of_an_earlier_release_is_read() -> None:
    """Its kernels have a name, a language, a place; its breaks and recompiles little more."""
    data = json.loads(sample().to_json())
    keys = ("kernel_name", "language", "graph", "direction", "path")
    data["kernels"] = [{key: data["kernels"][0][key] for key in keys}]
    function = {"file": "/home/me/model.py", "line": 12, "function": "forward"}
    data["breaks"] = [{"kind": "skipped", "reason": "graph break in loop", "count": 1, **function}]
    data["recompiles"] = [{"compile_id": "0/1", "reason": "size mismatch", **function}]
    report = Report.from_json(json.dumps(data))
    (kernel,) = report.kernels
    assert kernel == sample().kernels[0]
    assert report.breaks[0].skipped == [SkippedRecord("forward", "/home/me/model.py", 12)]
    assert (report.recompiles[0].count, report.recompiles[0].guards) == (1, [])


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_reports_of_the_last_release(path: Path) -> None:
    """Read, and written again: all that was in them, and what was added since."""
    assert len(RECORDED) >= 3
    before = json.loads(path.read_text())
    assert without(json.loads(read_report(path).to_json()), before) == before


def without(now: Any, before: Any) -> Any:
    """What is in ``now`` at the places that ``before`` has."""
    if isinstance(now, dict) and isinstance(before, dict):
        return {key: without(now[key], before[key]) for key in before}
    if isinstance(now, list) and isinstance(before, list):
        return [without(item, other) for item, other in zip(now, before, strict=True)]
    return now


def test_codes_of_what_was_written_without_them() -> None:
    """The first releases had them in the words only."""
    data = json.loads(sample().to_json())
    del data["note_codes"]
    data["notes"] = ["lost: counters: ValueError: no", "no window was open"]
    data["run"]["command"] = "/home/me/train.py --epochs 1"
    del data["run"]["program"]
    gave_up = {"kind": "gave up", "file": None, "line": None, "function": "f"}
    data["breaks"] = [{**gave_up, "reason": "Dynamo recompile limit exceeded: too often"}]
    data["next_steps"] = [
        {"code": "eager", "text": "compile it", "where": where, "bound_s": 1.0, "known": "exact"}
        for where in ("/home/me/train.py:13", None, "nowhere")
    ]
    for step in data["next_steps"]:
        step["bound_pct"] = None
    data["compile"]["cudagraphs"] = {
        "recorded": 2,
        "replayed": 3,
        "re_recorded": {"new sizes": 1, "another graph ran before it": 1},
        "skipped": {"mutated inputs (1 instances)": 1},
        "memory_bytes": None,
        "graphs": [],
    }
    report = Report.from_json(json.dumps(data))
    assert report.coded_notes() == [
        Note("lost", "lost: counters: ValueError: no"),
        Note("other", "no window was open"),
    ]
    assert report.breaks[0].is_recompile_limit
    assert report.run.program == "train.py"
    assert report.breaks[0].headline == "Dynamo recompile limit exceeded"
    assert [(step.file, step.line) for step in report.next_steps] == [
        ("/home/me/train.py", 13),
        (None, None),
        ("nowhere", None),
    ]
    assert report.compile.cudagraphs.had_new_sizes
    assert report.compile.cudagraphs.had_mutated_inputs
    assert Report.from_json(report.to_json()) == report


def test_a_field_that_was_added_later_is_ignored() -> None:
    data = json.loads(sample().to_json())
    for section in (data, data["run"], data["ops"]["captured"], data["graphs"][0]):
        section["added"] = [{"later": 1}]
    assert Report.from_json(json.dumps(data)) == sample()


def test_no_cuda_graphs_are_written_as_nothing() -> None:
    report = sample()
    assert json.loads(report.to_json())["compile"]["cudagraphs"] == {}
    report.compile.cudagraphs.skipped = {"cpu device": 1}
    assert json.loads(report.to_json())["compile"]["cudagraphs"]["skipped"] == {"cpu device": 1}


def test_what_is_not_finite_is_null() -> None:
    report = sample()
    report.run.wall_s = math.nan
    report.graphs[0].compile_s["dynamo_s"] = math.inf
    again = Report.from_json(report.to_json())
    assert (again.run.wall_s, again.graphs[0].compile_s["dynamo_s"]) == (None, None)


@pytest.mark.parametrize(
    "name",
    [os.fsdecode(b"/caf\xe9/\xf0\x9f\x98\x80.py"), "half of a pair: \ud83d", "\x1b[m\n\x00"],
)
def test_names_that_are_no_utf_8(name: str, tmp_path: Path) -> None:
    """Python has their bytes as surrogates; they come back as the bytes that they were."""
    report = sample()
    report.graphs[0].file = name
    report.run.wall_s = math.inf  # beside it, still null
    path = tmp_path / "report.json"
    path.write_text(report.to_json(), encoding="utf-8")
    again = read_report(path)
    assert (again.graphs[0].file, again.run.wall_s) == (name, None)
    assert json.loads(path.read_text())["graphs"][0]["file"] == name


def test_a_field_of_which_the_name_is_no_text() -> None:
    data = json.loads(sample().to_json())
    data["graphs"][0]["\ud800"] = 1
    with pytest.raises(ReportError, match="a field's name that is no text"):
        Report.from_json(json.dumps(data))


def test_notes_and_their_codes() -> None:
    kernel = KernelRecord("k", "cpp", notes=["of an earlier release"])
    kernel.add_note("time", "of 3 calls")
    # The first has none; what follows keeps its own.
    assert kernel.coded_notes() == [
        Note("other", "of an earlier release"),
        Note("time", "of 3 calls"),
    ]
    kernel.drop_notes({"other"})
    assert (kernel.notes, kernel.note_codes) == (["of 3 calls"], ["time"])


def test_every_item_of_a_list_has_a_line() -> None:
    report = sample()
    report.kernels *= 3
    lines = report.to_json().splitlines()
    assert sum('"kernel_name"' in line for line in lines) == 3
