"""Names, paths and messages of others: escaped on terminals, unchanged in data."""

import csv
import io
import json
import logging
import os
import re
from pathlib import Path
from typing import Any

import pytest
import traces
from calling import call, is_one_line
from kernel_data import modules
from sample_report import sample, sample_on_gpu

from instrumented_backend import logs, settings
from instrumented_backend.records import KernelRecord, Report
from instrumented_backend.records.bench import BenchRecord, BenchRun, GraphBench, Peak, Timing
from instrumented_backend.records.escapes import shown, shown_lines, to_bytes
from instrumented_backend.views.bench import BenchView
from instrumented_backend.views.files import write_files
from instrumented_backend.views.kernels import KernelsView
from instrumented_backend.views.output import render_view
from instrumented_backend.views.text import render

# Clears a terminal, in 7 and in 8 bits; ends a line; reverses one; a byte of a name; half a pair.
EVIL = "\x1b[2J\x9b2J\r\n\x08\x7f\u202e\u2028\udce9\ud83d"
UNSEEN = re.compile("[\0-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\ud800-\udfff]")
UTF_8 = EVIL.replace("\udce9\ud83d", "")
FORMULA = "=HYPERLINK(0)"


def test_escapes() -> None:
    assert shown(EVIL) == r"\x1b[2J\x9b2J\r\n\x08\x7f\u202e\u2028\xe9\ud83d"
    assert shown_lines("a\n\tb") == "a\n\\tb"
    plain = "é · µ → 日本 \U0001f600 \\n"
    assert shown(plain) == shown_lines(plain) == plain
    assert to_bytes("\n\x1b\udce9é") == b"\n\x1b\xe9\xc3\xa9"
    assert to_bytes("\ud83d") == rb"\ud83d"  # no byte that there was


def everywhere(value: Any, evil: str, key: str = "") -> Any:
    """Plain data with ``evil`` behind each text, and in front of each name that is no field."""
    if isinstance(value, str):
        return value + evil
    if isinstance(value, list):
        return [everywhere(item, evil) for item in value]
    if isinstance(value, dict):
        return {name: everywhere(item, evil) for name, item in value.items()}
    return value


@pytest.mark.parametrize("width", [20, 80, 200])
@pytest.mark.parametrize("table", settings.TABLES)
def test_a_report(table: str, width: int) -> None:
    data = json.loads(sample_on_gpu().to_json())
    report = Report.from_json(json.dumps(everywhere(data, EVIL)))
    for counters in (report.graphs[0].inductor_metrics, report.compile.phases):
        counters[EVIL] = 1
    report.recompiles[0].decided_s = {"shape": 2.5}
    report.recompiles[0].guards[0].kind = "shape"  # what there is advice on
    text = render(report, (table,), width)
    assert text and not UNSEEN.search(text)


def test_the_data_of_a_report_is_unchanged(tmp_path: Path) -> None:
    report = sample()
    evil = FORMULA + EVIL.replace("\ud83d", "")
    report.ops.missing[0].op = evil
    write_files(report, tmp_path)
    (path,) = tmp_path.glob("missing.*.csv")
    with path.open(newline="", encoding="utf-8", errors="surrogateescape") as file:
        assert next(csv.DictReader(file))["op"] == evil


def test_a_log_line(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger(logs.LOGGER)
    before, level, above = logger.handlers[:], logger.level, logging.getLogger().handlers[:]
    logging.getLogger().handlers = []  # pytest's
    try:
        logs.configure_logging("warning")
        logger.warning("lost: %s", EVIL)
    finally:
        logger.handlers, logging.getLogger().handlers = before, above
        logger.setLevel(level)
    said = capsys.readouterr().err
    assert r"\x1b[2J\x9b2J" in said and not UNSEEN.search(said)


def bench_run() -> BenchRun:
    took = Timing(1.0, 1.0, 1.0, 1.0, 1)
    return BenchRun(
        [
            BenchRecord(KernelRecord(FORMULA + EVIL, "cpp", notes=[EVIL]), error=EVIL),
            BenchRecord(KernelRecord("-k", EVIL, kernel_category=EVIL), timing=took, config=EVIL),
        ],
        [GraphBench(f"/cache/{EVIL}.py", took, error=EVIL)],
        {"cpu": Peak("cpu", EVIL, 10.0, 1 << 20)},
    )


@pytest.mark.parametrize("width", [40, 80, 200])
def test_kernels_and_their_times(width: int) -> None:
    kernels = [record.kernel for record in bench_run().kernels]
    for view in (KernelsView(kernels), BenchView(bench_run())):
        text = render_view(view, "table", width)
        assert r"\x1b" in text and not UNSEEN.search(text)
        json.loads(render_view(view, "json"))


def trace_with(folder: Path, name: str) -> Path:
    """A kernel, a device and a file of that name."""
    return traces.write(
        folder / f"t{name.replace('/', '')}.json",
        [traces.kernel(0, 10, name), traces.op(0, 20, name)],
        deviceProperties=[{"id": 0, "name": name}],
    )


def test_a_trace(tmp_path: Path) -> None:
    for path in (trace_with(tmp_path, UTF_8), trace_with(tmp_path, "plain")):
        path.rename(tmp_path / path.name.replace("plain", os.fsdecode(b"\xe9\x1b")))
    done = call("trace", *tmp_path.iterdir())
    assert done.returncode == 0 and not UNSEEN.search(done.stdout)
    assert r"\x1b[2J\x9b2J\r\n\x08\x7f\u202e" in done.stdout and r"\xe9\x1b.json" in done.stdout


def first_row(text: str) -> dict[str, str]:
    return next(csv.DictReader(io.StringIO(text, newline="")))


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_formulas_are_quoted_in_csv(tmp_path: Path, start: str) -> None:
    path = trace_with(tmp_path, f"{start}cmd")
    command = ("trace", path, "--format", "csv", "--tables", "kernels")
    assert first_row(call(*command).stdout)["name"] == f"'{start}cmd"
    assert first_row(call(*command, "--no-quote-formulas").stdout)["name"] == f"{start}cmd"
    (trace,) = json.loads(call("trace", path, "--format", "json").stdout)["traces"]
    assert trace["devices"][0]["kernels"][0]["name"] == f"{start}cmd"


def test_what_is_no_formula_is_left_alone() -> None:
    view = BenchView(bench_run())
    plain = list(csv.DictReader(io.StringIO(render_view(view, "csv"), newline="")))
    quoted = render_view(view, "csv", quote_formulas=True)
    rows = list(csv.DictReader(io.StringIO(quoted, newline="")))
    differ = [
        (row[column], cell)
        for row, other in zip(plain, rows, strict=True)
        for column, cell in other.items()
        if row[column] != cell
    ]
    assert differ == [(FORMULA + EVIL, f"'{FORMULA}{EVIL}"), ("-k", "'-k")]


LATIN = os.fsdecode(b"latin\xe9lib.py")


def test_a_module_whose_name_is_no_utf_8(tmp_path: Path) -> None:
    path = tmp_path / LATIN
    path.write_text(modules()["plain/pointwise.graph1.py"])
    assert call("kernels", path).returncode == 0
    for layout, of in (
        ("csv", lambda text: first_row(text)["graph_path"]),
        ("json", lambda text: json.loads(text)[0]["path"]),
    ):
        assert of(call("kernels", path, "--format", layout).stdout) == str(path)


# What `run` is given is told by Python, in its own words.
@pytest.mark.parametrize("command", ["kernels", "bench", "trace", "show"])
def test_the_name_of_a_missing_file(tmp_path: Path, command: str) -> None:
    done = call(command, f"/nowhere/{EVIL[:-1]}.py")  # half a pair is no file's name
    assert is_one_line(done)
    assert r"\x1b[2J\x9b2J\r\n\x08\x7f\u202e\u2028\xe9.py" in done.stderr
