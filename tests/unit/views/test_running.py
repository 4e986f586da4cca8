"""What a report says that was written while its program ran."""

from sample_report import sample

from instrumented_backend.records import Compiling
from instrumented_backend.records.report import INTERRUPTED, RUNNING
from instrumented_backend.views.running import running_lines
from instrumented_backend.views.text import render

NOON = 1795435200.0  # 2026-11-23 12:00:00 UTC


def test_one_that_has_ended_says_nothing() -> None:
    report = sample()
    assert running_lines(report) == []
    report.run.status = INTERRUPTED
    assert running_lines(report) == []


def test_when_it_was_last_seen_and_what_it_compiled() -> None:
    report = sample()
    report.run.status, report.run.seen_at = RUNNING, NOON
    report.compiling = [
        Compiling("0/1", "forward", "/a/b/c/train.py", 39, NOON - 12, "size of x: 64 → 48"),
        Compiling(
            "2/0",
            "torch_dynamo_resume_in_f_at_41",
            *("/a/b/c/train.py", 39, NOON - 1, "grad mode", "/a/b/c/model.py", 88, "backward"),
        ),
        Compiling("?", None, None, None, NOON + 5),
    ]
    assert running_lines(report) == [
        "still running when it was last seen at 2026-11-23 12:00:00 UTC",
        "compiling forward (.../c/train.py:39) for 12 s: size of x: 64 → 48",
        "compiling the backward of the rest of f (.../c/train.py:41) for 1 s: grad mode, "
        "used at .../c/model.py:88",
        "compiling ? for 0 s",
    ]
    assert "still running when it was last seen at 2026-11-23" in render(report, ("summary",), 80)


def test_a_moment_that_is_not_known() -> None:
    report = sample()
    report.run.status = RUNNING
    assert running_lines(report) == ["still running when it was last seen"]
