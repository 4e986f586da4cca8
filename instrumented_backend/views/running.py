"""What is said of a report that was written before its program had ended."""

from datetime import UTC, datetime

from instrumented_backend.records import Compiling, Report
from instrumented_backend.records.report import RUNNING
from instrumented_backend.views.names import compilation, why


def running_lines(report: Report) -> list[str]:
    """The figures' time, and what was being compiled; no lines for a program that has ended."""
    if report.run.status != RUNNING:
        return []
    seen_at = report.run.seen_at
    return [
        f"still running when it was last seen{_moment(seen_at)}",
        *(_compiling(one, seen_at) for one in report.compiling),
    ]


def _moment(seen_at: float | None) -> str:
    """Nothing where the number is no time of ours."""
    try:
        return "" if seen_at is None else f" at {datetime.fromtimestamp(seen_at, UTC):%F %T} UTC"
    except (ValueError, OverflowError, OSError):
        return ""


def _compiling(one: Compiling, seen_at: float | None) -> str:
    """``"compiling forward (train.py:39) for 12 s: size of x in dimension 1: 64 → 48"``"""
    what = compilation(one) if one.file else one.function or one.compile_id
    took = "" if seen_at is None else f" for {max(0.0, seen_at - one.since_at):.0f} s"
    reason = why(one)
    return f"compiling {what}{took}{'' if reason is None else f': {reason}'}"
