"""Times of graphs, and shares and counts of missed ops, in their tables."""

import json

from sample_report import sample

from instrumented_backend.records import Report
from instrumented_backend.views.output import TableRow, to_csv, to_json
from instrumented_backend.views.tables import TABLES
from instrumented_backend.views.text import cell_text, render


def report_with_a_slow_call() -> Report:
    """1,000 calls of 0.2 ms each, one of 300 ms, and 1,001 backwards of 0.1 ms each."""
    report = sample()
    (graph,) = report.graphs
    graph.calls = graph.backward_calls = 1001
    graph.forward_time_us, graph.longest_call_us = 500_000.0, 300_000.0
    graph.backward_time_us, graph.longest_backward_us = 100_100.0, 100.0
    return report


def test_a_graphs_times() -> None:
    (row,) = TABLES["graphs"].rows(report_with_a_slow_call())
    # 500 + 100.1 ms; 500 ms / 1001 and 100.1 ms / 1001.
    assert row["time_us"] == 600_100.0
    assert row["mean_call_us"] == 500_000 / 1001
    assert (row["mean_backward_us"], row["longest_backward_us"]) == (100.0, 100.0)


def test_one_long_call_is_seen_at_80_columns() -> None:
    lines = render(report_with_a_slow_call(), ("graphs",), 80).splitlines()
    assert lines[1].split()[-5:] == ["calls", "time", "mean", "longest", "longest"]
    assert lines[4].split()[-9:] == ["1,001", "600", "ms", "500", "µs", "300", "ms", "100", "µs"]
    assert lines[5].startswith("left out at this width: ops, backward calls, kernels, cache")


def test_what_a_graph_that_never_ran_has_not() -> None:
    (row,) = TABLES["graphs"].rows(sample())
    assert {row[name] for name in ("time_us", "mean_call_us", "longest_call_us")} == {None}
    assert "longest" not in render(sample(), ("graphs",), 200)
    report = report_with_a_slow_call()
    report.graphs[0].backward_time_us = None
    report.graphs[0].calls = 0
    (row,) = TABLES["graphs"].rows(report)
    assert (row["time_us"], row["mean_call_us"]) == (500_000.0, None)


def test_an_op_has_one_share_in_the_summary_and_the_table() -> None:
    report = sample()
    (missed,) = report.ops.missing
    # In a report of the last release: 1,000 of 10,000 µs, in all eager ops 100 %.
    (row,) = TABLES["missing"].rows(report)
    assert (row["op_time_pct"], row["share_pct"]) == (10.0, 100.0)
    assert "10.0 % of op time" in render(report, ("summary",), 200)
    missed.op_time_pct = 12.5
    (row,) = TABLES["missing"].rows(report)
    assert row["op_time_pct"] == 12.5
    assert "12.5 % of op time" in render(report, ("summary",), 200)
    text = render(report, ("missing",), 80)
    assert "12.5" in text and "100.0" not in text


def test_counts_with_their_spread() -> None:
    report = sample()
    (missed,) = report.ops.missing
    missed.count, missed.count_spread = 280, 3.2
    summary, table = render(report, ("summary",), 200), render(report, ("missing",), 80)
    assert "280 ± 4 calls" in summary
    assert " 280 ± 4 " in table and "±: two standard errors" in table
    (row,) = TABLES["missing"].rows(report)
    assert (row["count"], row["count_spread"]) == (280, 3.2)
    missed.count_spread = 0.0
    assert "280 calls" in render(report, ("summary",), 200)
    assert "±" not in render(report, ("missing",), 80)


def test_what_is_sampled_is_not_called_exact() -> None:
    report = sample()
    report.ops.status, report.ops.pct_ops_spread, report.ops.pct_time_spread = "exact", 0.0, 0.0
    assert render(report, ("summary",), 200).splitlines()[2].endswith("the whole run observed")
    report.ops.missing[0].count_spread = 1.0
    line = render(report, ("summary",), 200).splitlines()[2]
    assert line.endswith("exact, the whole run observed; sampled: which line an op was on")


def test_numbers_that_are_names_have_no_separators() -> None:
    row: TableRow = {"graph": 1234, "pid": 27291, "calls": 1234}
    cells = [cell_text(TABLES["kernels"], row, column) for column in row]
    assert cells == ["1234", "27291", "1,234"]


def test_a_place_is_one_text_in_files_and_short_on_a_terminal() -> None:
    report = sample()
    (missed,) = report.ops.missing
    for line, whole, short in (
        (7, "/home/you/me/train.py:7", ".../me/train.py:7"),
        (None, "/home/you/me/train.py", ".../me/train.py"),
    ):
        missed.file, missed.line = "/home/you/me/train.py", line
        (row,) = TABLES["missing"].rows(report)
        assert row["where"] == whole
        assert cell_text(TABLES["missing"], row, "where") == short
        assert to_csv([row]).splitlines()[1].split(",")[1] == whole
        assert json.loads(to_json([row]))[0]["where"] == whole
    missed.file = None
    (row,) = TABLES["missing"].rows(report)
    assert row["where"] is None
