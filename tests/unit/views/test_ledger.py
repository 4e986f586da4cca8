"""The ledger's line in the summary, and its table."""

import csv
from pathlib import Path

from sample_report import sample

from instrumented_backend.records import LedgerRow, LedgerSection, Report
from instrumented_backend.views.files import write_files
from instrumented_backend.views.tables import TABLES
from instrumented_backend.views.text import render


def main(row: str, seconds: float | None, spread_s: float | None = 0.0) -> LedgerRow:
    """A row of the main thread in a run of 40 s."""
    share = None if seconds is None else seconds / 40 * 100
    status = "unknown" if seconds is None else "sampled" if spread_s else "exact"
    return LedgerRow(row, "main", seconds, share, spread_s, status)


def other(row: str, seconds: float) -> LedgerRow:
    return LedgerRow(row, "other", seconds, None, 0.0, "exact")


def report_with(*rows: LedgerRow, note: str | None = None) -> Report:
    report = sample()
    report.ledger = LedgerSection(40.0, list(rows), note)
    return report


def ledger_line(report: Report) -> str:
    """The summary's second line."""
    return render(report, ("summary",), 400).splitlines()[1]


# 24.4 + 7.6 + 6.8 + 1.0 + 0.2 = 40 s: 61, 19, 17, 2.5 and 0.5 %.
WHOLE = (
    main("startup", 0.2),
    main("compile", 1.0),
    main("captured", 24.4),
    main("eager_ops", 6.8, 0.4),
    main("data", 0.0),
    main("python", 7.6, 0.4),
)


def test_the_largest_row_is_first_and_what_is_under_one_percent_is_left_out() -> None:
    line = ledger_line(report_with(*WHOLE))
    assert line == "40.0 s: compiled code 61 % · Python 19 % · eager ops 17 % · compiling 2 %"
    rows = main("data", 20.0), main("startup", 20.0)
    assert ledger_line(report_with(*rows)) == "40.0 s: data loading 50 % · startup 50 %"


def test_shares_that_the_record_has_not_are_of_the_wall_time() -> None:
    row = LedgerRow("captured", "main", 10.0, None, 0.0, "exact")
    assert ledger_line(report_with(row)) == "40.0 s: compiled code 25 %"


def test_no_rows_no_line() -> None:
    report = report_with(note="INSTRUMENTED_OPS=off")
    assert ledger_line(report).startswith("captured ")
    assert render(report, ("ledger",), 80) == ""
    assert TABLES["ledger"].rows(report) == []


def test_what_is_unknown_is_said() -> None:
    line = ledger_line(report_with(main("captured", 10.0), main("eager_ops", None, None)))
    assert line == "40.0 s: compiled code 25 % · not known: eager ops"


def test_a_large_spread_is_said_with_what_helps() -> None:
    # 2 of 40 s are 5 points, which are still few enough; 2.4 s are 6.
    few = report_with(main("captured", 30.0), main("eager_ops", 10.0, 2.0))
    assert ledger_line(few) == "40.0 s: compiled code 75 % · eager ops 25 %"
    assert "next:" not in render(few, ("ledger",), 80)
    many = report_with(main("captured", 30.0), main("eager_ops", 10.0, 2.4))
    assert ledger_line(many) == (
        "40.0 s: compiled code 75 % · eager ops 25 % · sampled, ± 6 points; "
        "INSTRUMENTED_OPS=always observes all"
    )
    assert "next: INSTRUMENTED_OPS=always" in render(many, ("ledger",), 80)


def test_other_threads_are_beside_the_main_one() -> None:
    # More than 1 % of 40 s are more than 0.4 s; four threads can have 120 s among them.
    report = report_with(
        main("python", 40.0), other("captured", 120.0), other("eager_ops", 2.0), other("data", 0.3)
    )
    line = "40.0 s: Python 100 % · other threads: compiled code 2 min, eager ops 2.00 s"
    assert ledger_line(report) == line
    # Their spread is not one of the wall time's shares.
    report.ledger.rows[1].spread_s = 30.0
    assert ledger_line(report) == line


def test_the_line_wraps() -> None:
    lines = render(report_with(*WHOLE), ("summary",), 60).splitlines()
    assert lines[2:4] == [
        "40.0 s: compiled code 61 % · Python 19 % · eager ops 17 % ·",
        "  compiling 2 %",
    ]


def test_the_table() -> None:
    report = report_with(*WHOLE[:3], other("captured", 3.1), note="eager ops: no compiler")
    assert render(report, ("ledger",), 80).splitlines() == [
        "Where the time of the process went (share: of wall time)",
        "threads  row       seconds  share  spread  status",
        "                              (%)     (s)",
        "-------  --------  -------  -----  ------  ------",
        "main     captured    24.40   61.0    0.00  exact",
        "main     compile      1.00    2.5    0.00  exact",
        "main     startup      0.20    0.5    0.00  exact",
        "other    captured     3.10           0.00  exact",
        "startup: from the process's start to the first torch.compile",
        "compile (compiling): Dynamo, Inductor and the compilers of kernels",
        "captured (compiled code): in calls of graphs, forward and backward",
        "other threads: seconds of all of them together, beside the main thread's",
        "eager ops: no compiler",
    ]


def test_its_file(tmp_path: Path) -> None:
    write_files(report_with(*WHOLE), tmp_path)
    with (tmp_path / "ledger.rank0.pid17.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["threads", "row", "seconds", "share_pct", "spread_s", "status"]
    assert [row["row"] for row in rows] == [
        *("captured", "python", "eager_ops", "compile", "startup", "data")
    ]
    assert (rows[2]["seconds"], rows[2]["spread_s"], rows[2]["status"]) == ("6.8", "0.4", "sampled")
