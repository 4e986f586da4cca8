"""The text fits the terminal, the files hold the rows."""

import csv
import json
from pathlib import Path

import pytest
from sample_report import sample, sample_on_gpu

from instrumented_backend import settings
from instrumented_backend.records import (
    BreakRecord,
    CapturedRecord,
    DeviceRecord,
    GraphRecord,
    OpsRecord,
    Report,
    notes,
)
from instrumented_backend.views.files import write_files
from instrumented_backend.views.tables import TABLES
from instrumented_backend.views.text import render


def test_the_first_line_has_the_facts() -> None:
    first = render(sample(), ("summary",), 200).splitlines()[0]
    assert first == (
        "instrumented: 1 graph, 3 calls (+2 backward), 1 graph break, 1 recompile "
        "· torch 2.13.0, cpu"
    )


def test_the_summary_says_what_is_known_and_what_is_not() -> None:
    text = render(sample(), ("summary",), 80)
    text = " ".join(text.split())
    # 9,000 of 10,000 us are 9 of 10 ms; the larger of the two spreads, 0.25 and 1.5 points.
    assert "captured 30/40 ops (75.0 %), 9/10 ms op time (90.0 %)" in text
    assert "sampled, 17.0 % of the time observed, ± 1.5 points" in text
    assert "missed aten::add at .../me/model.py:16: 10.0 % of op time, 10 calls" in text
    assert "compiled in 0.75 s" in text
    assert "1 of 1 graph from the cache" in text
    assert "ran eagerly: forward (.../me/model.py:12): graph break in loop" in text
    assert "graph break at .../me/model.py:14 in block: Failed to trace print" in text
    assert "next: .../me/model.py:12: forward recompiled for size of x" in text


def test_device_time_says_what_it_costs() -> None:
    report = sample()
    device = DeviceRecord("sampled", 2, 5.0, 900.0, 500.0, 480.0, 360.0, 75.0, [], None)
    report.ops.device = device
    text = " ".join(render(report, ("summary",), 80).split())
    # 360 of 480 us.
    assert "device time: captured 360/480 µs of kernel time (75.0 %) · sampled, 2 windows" in text
    assert "5.0 % of the calls observed; the process runs slower from the first window on" in text
    again = Report.from_json(report.to_json())
    assert again.ops.device == device
    device.pct_captured, device.note = None, "no graph was compiled for CUDA"
    text = render(report, ("summary",), 80)
    assert "device time: unknown: no graph was compiled for CUDA" in text


def test_a_cause_without_a_line_is_in_the_table_only() -> None:
    report = sample()
    report.breaks.append(BreakRecord("gave up", "Attempt to trace generator", None, None, None, 1))
    assert "generator" not in render(report, ("summary",), 80)
    assert "generator" in render(report, ("breaks",), 80)


def test_unknown_ops_say_why() -> None:
    report = sample()
    report.summary.captured_ops = report.summary.total_ops = None
    report.summary.pct_ops = report.summary.pct_time = None
    why = "no op meter: no compiler"
    report.ops = OpsRecord("unknown", None, CapturedRecord(), None, None, None, None, [], [], why)
    text = " ".join(render(report, ("summary",), 80).split())
    assert "captured -/- ops: no op meter: no compiler · 7 ops in the graphs" in text


def test_breaks_say_what_where_why_and_what_it_costs() -> None:
    # 1,000 us are 1 ms.
    assert render(sample(), ("breaks",), 80).splitlines() == [
        "What broke graphs or left functions eager, the costliest first",
        '.../me/model.py:14 in block: print("hi")',
        "  Failed to trace print",
        "  ran eagerly as a whole: forward (.../me/model.py:12): graph break in loop",
        "  met 2 times · after graph 0 · before graph 1 · 10 eager ops, 1 ms",
        "  try: Avoid calling it.",
        "next: start with .../me/model.py:14 (1 ms): Avoid calling it.",
    ]


def test_recompiles_say_which_guards_and_the_cure() -> None:
    report = sample()
    report.recompiles[0].limit_hits = 1
    assert render(report, ("recompiles",), 80).splitlines() == [
        "Functions recompiled, and the guards that failed",
        "forward (.../me/model.py:12): recompiled 1 time, 2.50 s",
        "  RECOMPILE LIMIT REACHED: what none of its compiled versions fits runs eagerly",
        "  size of x in dimension 0: 4 → 5, used at .../me/model.py:13 `x = x + 1`",
        "  try: mark_dynamic",
        "next: forward: change what the guards are on, or raise",
        "  torch._dynamo.config.recompile_limit",
        "next: torch.compile(dynamic=True) for forward: changing shapes took 2.50 s",
    ]


def test_compile_times_end_with_the_phases() -> None:
    # 0.5 s and 0.25 s of 0.75 s.
    text = " ".join(render(sample(), ("compile",), 80).split())
    assert "in all 0.75 s: dynamo 0.50 s (66.7 %), aot autograd 0.25 s (33.3 %)" in text


def test_a_loss_of_ours_is_in_the_summary() -> None:
    report = sample()
    report.add_note(notes.LOST, "lost: counters: ValueError: no")
    report.add_note(notes.NOT_LISTED, "lost: is how this text begins, too")
    text = render(report, ("summary",), 80)
    assert "lost: counters: ValueError: no" in text and "is how this text begins" not in text


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_everything_fits(width: int) -> None:
    report = sample_on_gpu()
    report.graphs.append(
        GraphRecord(
            graph=1,
            compile_id="1/0",
            function="torch_dynamo_resume_in_a_function_with_a_long_name_at_1234",
            file="/a/very/long/path/" + "deep/" * 20 + "module.py",
            line=1234,
            ops=1_000_000,
            calls=123_456_789,
            backward_calls=123_456_789,
            ended_by="x" * 400,
        )
    )
    report.breaks[0].reason = report.breaks[0].hint = "a long reason " * 20
    report.breaks[0].function = report.breaks[0].source = "one_long_word" * 20
    report.recompiles[0].guards[0].source = "a long line " * 20
    report.recompiles[0].function = report.recompiles[0].guards[0].subject = "a" * 300
    text = render(report, settings.TABLES, width)
    assert all(len(line) <= width for line in text.splitlines()), max(text.splitlines(), key=len)
    assert "123,456,789" in text  # figures are never cut


def test_empty_tables_are_silent() -> None:
    report = sample()
    report.breaks.clear()
    report.recompiles.clear()
    report.ops.missing.clear()
    assert render(report, ("breaks", "recompiles", "missing"), 80) == ""


def test_long_tables_end_with_what_is_left_out() -> None:
    report = sample()
    report.kernels *= 150
    assert render(report, ("kernels",), 80).endswith("... 50 more rows in the report")


def test_every_table_of_the_settings_is_drawn() -> None:
    assert tuple(TABLES) == settings.TABLES
    text = render(sample_on_gpu(), settings.TABLES, 120)
    for table in TABLES.values():
        if table.name != "summary":
            assert table.title in text


def test_files(tmp_path: Path) -> None:
    report = sample()
    write_files(report, tmp_path / "new")
    written = {path.name for path in (tmp_path / "new").iterdir()}
    assert "report.rank0.pid17.json" in written
    assert not [name for name in written if name.endswith(".part")]
    saved = json.loads((tmp_path / "new" / "report.rank0.pid17.json").read_text())
    assert saved["summary"] == vars(report.summary)
    with (tmp_path / "new" / "graphs.rank0.pid17.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert (row["function"], row["calls"], row["backward_calls"]) == ("forward", "3", "2")
    with (tmp_path / "new" / "summary.rank0.pid17.csv").open() as file:
        (row,) = csv.DictReader(file)
    # Dynamo's own names, and nothing where nothing is known.
    for column in ("graphs", "graph_calls", "captured_ops", "total_ops", "pct_ops", "pct_time"):
        assert column in row
    assert row["captured_ops"] == "30"
