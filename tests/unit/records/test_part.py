"""What came between two reports: by arithmetic on the second less the first."""

import copy
from pathlib import Path

import pytest
from page_report import page_report
from sample_report import sample_on_gpu

from instrumented_backend.records import (
    BreakRecord,
    CompileRecord,
    EagerOpRecord,
    GpuSection,
    GraphRecord,
    KernelRecord,
    LedgerRow,
    LineRecord,
    RecompileRecord,
    Report,
)
from instrumented_backend.records.notes import GPU_UNKNOWN
from instrumented_backend.records.part import part


@pytest.fixture
def before(tmp_path: Path) -> Report:
    return page_report(tmp_path)


@pytest.fixture
def after(before: Report) -> Report:
    """Graph 0 was called 5 more times, graph 2 is new; 50 more captured and 4 more eager ops."""
    report = copy.deepcopy(before)
    report.ops.status = "exact"
    report.run.wall_s, report.ledger.wall_s = 4.5, 5.0
    report.ledger.rows[1].seconds = 1.75
    report.graphs[0].calls += 5
    report.graphs.append(GraphRecord(2, "2/0", "g", calls=1, cache="miss"))
    report.caches.graphs.miss += 1
    report.kernels.insert(0, KernelRecord("new", "cpp", 2))
    for line in report.lines:
        line.kernels = [place + 1 for place in line.kernels]
    report.ops.captured.ops = 80
    report.ops.captured.forward_ops, report.ops.captured.time_us = 70, 12_000.0
    report.ops.total_ops, report.ops.total_time_us = 94, 13_500.0
    report.ops.eager[0].count, report.ops.eager[0].time_us = 12, 1_400.0
    report.ops.eager.append(EagerOpRecord("aten::exp", 2, 100.0, 7.0))
    report.summary.graph_calls, report.summary.recompiles = 9, 2
    report.breaks.insert(0, BreakRecord("break", "new", "a.py", 7, "g", 1))
    report.lines[0].breaks = [1]
    report.recompiles.append(RecompileRecord("2/1", "g", "a.py", 3, "new", 1, 0.5))
    report.lines[0].captured_ops, report.lines[0].eager_ops = 56, 9
    report.lines[0].eager_time_us = 1_150.0
    line = LineRecord("a.py", 7, "g", 0, 0, 0, {}, [2], 2, 0.0, 100.0, [0], kernels=[0])
    report.lines.append(line)
    report.lines.append(LineRecord("a.py", 3, "g", recompiles=1, recompile_s=0.5))
    report.compile.total_s = 1.25
    report.compile.compilations.append(
        CompileRecord("2/0", "forward", "g", "a.py", 7, "compiled", [2], {"dynamo_s": 0.5}, 0.5)
    )
    report.counters.graphs["aot_autograd"]["autograd_cache_hit"] = 4
    report.add_note("other", "new")
    return report


def test_counts(before: Report, after: Report) -> None:
    found = part(before, after)
    summary = found.summary
    assert (summary.graphs, summary.graph_calls, summary.recompiles) == (2, 6, 1)
    assert (summary.graph_breaks, summary.captured_ops, summary.total_ops) == (1, 50, 54)
    assert summary.pct_ops == pytest.approx(100 * 50 / 54)
    assert summary.pct_time == pytest.approx(100 * 3_000 / 3_500)
    assert [(graph.graph, graph.calls) for graph in found.graphs] == [(0, 5), (2, 1)]
    assert found.graphs[0].longest_call_us is None
    assert [(record.op, record.count, record.time_us) for record in found.ops.eager] == [
        ("aten::add", 2, 400.0),
        ("aten::exp", 2, 100.0),
    ]
    assert found.ops.missing == []  # nothing of it was on a line that is known to have more
    assert (found.run.wall_s, found.ledger.wall_s, found.ledger.seconds("captured")) == (3, 3, 0.75)
    assert found.ledger.rows[1].share_pct == 25.0
    assert found.compile.total_s == 0.5
    assert [record.compile_id for record in found.compile.compilations] == ["2/0"]
    assert (found.caches.graphs.hit, found.caches.graphs.miss) == (0, 1)
    assert found.counters.graphs == {"aot_autograd": {"autograd_cache_hit": 3}}
    assert found.notes == ["new"]


def test_lines_and_their_links(before: Report, after: Report) -> None:
    found = part(before, after)
    lines = {(line.file, line.line): line for line in found.lines}
    old = next(line for line in lines.values() if line.line == 5)
    assert (old.captured_ops, old.eager_ops, old.eager_time_us, old.breaks) == (50, 2, 400.0, [])
    new = lines["a.py", 7]
    assert [found.breaks[place].reason for place in new.breaks] == ["new"]
    assert [found.kernels[place].kernel_name for place in new.kernels] == ["new"]
    assert lines["a.py", 3].recompiles == 1
    assert sum(line.captured_ops or 0 for line in found.lines) == found.summary.captured_ops
    assert sum(line.eager_ops or 0 for line in found.lines) == 4


def test_an_empty_part(before: Report) -> None:
    found = part(before, before)
    assert (found.graphs, found.breaks, found.recompiles, found.lines) == ([], [], [], [])
    assert (found.summary.graph_calls, found.summary.captured_ops) == (0, 0)
    assert found.ops.eager == [] and found.notes == [found.ops.note]  # sampled: no spread


def test_neither_report_changes(before: Report, after: Report) -> None:
    kept = copy.deepcopy((before, after))
    part(before, after)
    assert (before, after) == kept


def test_the_gpus_time() -> None:
    """Of 0.45 s, then 1.45 s: one second more, of which 0.5, 0.3 and 0.2 s; spreads add up."""
    before, after = sample_on_gpu(), sample_on_gpu()
    after.gpu.timeline_s = 1.45
    row = after.gpu.gpus[0]
    row.captured_s, row.eager_s, row.idle_s, row.spread_pct = 0.77, 0.39, 0.29, 2.0
    made = part(before, after).gpu
    (gpu,) = made.gpus
    assert made.timeline_s == pytest.approx(1.0)
    assert (gpu.captured_s, gpu.eager_s, gpu.idle_s) == pytest.approx((0.5, 0.3, 0.2))
    assert (gpu.captured_pct, gpu.eager_pct, gpu.idle_pct) == pytest.approx((50, 30, 20))
    # 2 % of 1.45 s and 0.5 % of 0.45 s.
    assert gpu.spread_pct == pytest.approx(2.9 + 0.225)


def test_a_gpu_of_which_nothing_was_known_before() -> None:
    """It is behind with calls of before: what it does for them is none of the part's."""
    before, after = sample_on_gpu(), sample_on_gpu()
    before.gpu.gpus = []
    after.gpu.timeline_s = 1.45
    made = part(before, after).gpu
    assert (made.timeline_s, made.gpus) == (pytest.approx(1.0), [])
    assert made.note_code == GPU_UNKNOWN


def test_a_gpu_that_no_graph_was_called_on_before() -> None:
    """Its timeline begins with the run's first `torch.compile`, and the part's does not: of 3 s,
    1 s was before. Of what is left of the others, 0.5 s, three parts in five are eager."""
    before, after = sample_on_gpu(), sample_on_gpu()
    before.gpu = GpuSection()
    before.ledger.rows = [
        LedgerRow(name, threads, seconds, None, 0.0, "exact")
        for name, threads, seconds in (
            ("startup", "main", 7.0),
            ("compile", "main", 5.0),
            ("python", "main", 0.75),
            ("eager_ops", "main", 0.25),
            ("eager_ops", "other", 9.0),
        )
    ]
    after.gpu.timeline_s = 3.0
    row = after.gpu.gpus[0]
    row.captured_s, row.eager_s, row.idle_s, row.spread_pct = 1.5, 0.9, 0.6, 2.0
    made = part(before, after).gpu
    (gpu,) = made.gpus
    assert made.timeline_s == pytest.approx(2.0)
    assert (gpu.captured_s, gpu.eager_s, gpu.idle_s) == pytest.approx((1.5, 0.3, 0.2))
    assert (gpu.captured_pct, gpu.eager_pct, gpu.idle_pct) == pytest.approx((75, 15, 10))
    assert gpu.spread_pct == pytest.approx(3.0)
