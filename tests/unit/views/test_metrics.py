"""A few figures of a report, for dashboards."""

import math

from paths import REPOSITORY
from sample_report import sample

from instrumented_backend import metrics_of
from instrumented_backend.records import LedgerSection
from instrumented_backend.views.metrics import METRICS

# Names in people's dashboards: one may be added, none may go or change.
NAMES = {
    *("graphs", "graph_calls", "backward_calls", "graph_breaks", "skipped_functions"),
    *("recompiles", "recompile_limit_hits", "compile_s", "recompile_s", "cached_pct"),
    *("captured_ops_pct", "op_time_pct", "startup_pct", "compile_pct", "captured_pct"),
    *("eager_ops_pct", "data_pct", "python_pct", "gpu_captured_pct", "gpu_idle_pct"),
}


def test_the_names_stay_and_are_few() -> None:
    assert {metric.name for metric in METRICS} == NAMES
    assert len(METRICS) == len(NAMES) <= 20


def test_the_samples_figures() -> None:
    report = sample()
    report.recompiles[0].limit_hits = 4
    assert metrics_of(report, prefix="") == {
        "graphs": 1,
        "graph_calls": 3,
        "backward_calls": 2,
        "graph_breaks": 1,
        "skipped_functions": 1,
        "recompiles": 1,
        "recompile_limit_hits": 4,
        "compile_s": 0.75,
        "recompile_s": 2.5,
        "cached_pct": 100.0,
        "captured_ops_pct": 75.0,
        "op_time_pct": 90.0,
        "startup_pct": 100 * (0.3 / 1.5),
        "compile_pct": 100 * (0.75 / 1.5),
        "captured_pct": 100 * (0.009 / 1.5),
        "eager_ops_pct": 100 * (0.001 / 1.5),
        "data_pct": 0.0,
        "python_pct": 100 * (0.44 / 1.5),
    }


def test_what_is_unknown_is_left_out() -> None:
    """A logger takes numbers, and 0 would be one."""
    report = sample()
    report.ledger = LedgerSection(note="without the op meter")
    report.summary.pct_ops = report.summary.pct_time = None
    report.graphs = []
    figures = metrics_of(report)
    assert set(figures) == {f"instrumented/{name}" for name in NAMES if not name.endswith("_pct")}
    assert all(math.isfinite(value) for value in figures.values())


def test_the_pages_table() -> None:
    page = (REPOSITORY / "docs" / "watching.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith(tuple(f"| `{m}`" for m in NAMES))]
    assert rows == [
        f"| `{each.name}` | {each.meaning} | "
        f"{'count' if each.is_count and each.unit == '1' else each.unit} |"
        for each in METRICS
    ]
