"""The section `lines`: sums that hold, whatever was rounded and whatever has no line."""

from collections import Counter
from pathlib import Path

import pytest
from page_report import page_report

from instrumented_backend.observe import source_lines
from instrumented_backend.observe.native.keys import region_key
from instrumented_backend.observe.ops.captured import GraphOps
from instrumented_backend.observe.ops.estimate import Estimate, Sampled
from instrumented_backend.observe.ops.lines import UNKNOWN, Line
from instrumented_backend.observe.source_files import SourceFiles
from instrumented_backend.observe.source_lines import add_lines
from instrumented_backend.records import GraphRecord, Report

A, B = Line("a.py", 1, "f"), Line("b.py", 2, "g")


@pytest.fixture
def report(tmp_path: Path) -> Report:
    report = page_report(tmp_path)
    report.breaks, report.recompiles, report.kernels = [], [], []
    return report


def of(report: Report) -> dict[tuple[str | None, int | None], tuple[int | None, int | None]]:
    return {(line.file, line.line): (line.captured_ops, line.eager_ops) for line in report.lines}


def graph(calls: int, backward_calls: int, direction: str = "forward") -> GraphRecord:
    return GraphRecord(0, calls=calls, backward_calls=backward_calls, direction=direction)


def test_captured_ops(report: Report) -> None:
    ops = GraphOps(forward_lines=Counter({A: 3, UNKNOWN: 1}), backward_lines=Counter({A: 2}))
    ops.nodes[A, "linear"] = 2
    add_lines(report, [(ops, graph(5, 4))], None, {}, SourceFiles())
    assert of(report) == {("a.py", 1): (23, None), (None, None): (5, None)}
    (line, _) = report.lines
    assert (line.forward_ops, line.backward_ops, line.called) == (15, 8, {"linear": 2})
    assert line.graphs == [0]


def test_calls_inside_of_another_graphs_are_not_counted(report: Report) -> None:
    ops = GraphOps(forward_lines=Counter({A: 3}), backward_lines=Counter({A: 2}))
    add_lines(report, [(ops, graph(5, 4))], None, {region_key(0, False): 2}, SourceFiles())
    assert of(report) == {("a.py", 1): (3 * 3 + 2 * 4, None)}


def test_a_graph_of_compiled_autograd(report: Report) -> None:
    ops = GraphOps(forward_lines=Counter({A: 3}), backward_lines=Counter({A: 9}))
    add_lines(report, [(ops, graph(0, 4, "backward"))], None, {}, SourceFiles())
    assert (report.lines[0].forward_ops, report.lines[0].backward_ops) == (0, 12)


@pytest.mark.parametrize(
    ("seen", "total", "whole"),
    [
        ([0.5, 0.5, 1.5], 2.5, 2),  # Python rounds to even
        ([1 / 3] * 3, 1.0, 1),
        ([0.6, 0.6, 0.6], 1.8, 2),
        ([0.0, 10.0, 0.2], 10.2, 10),
    ],
)
def test_whole_ops_add_up(report: Report, seen: list[float], total: float, whole: int) -> None:
    found = Estimate(exact=False, eager=Sampled(total, 100.0))
    for number, ops in enumerate(seen):
        found.by_line["aten::add", Line("a.py", number + 1, "f")] = Sampled(ops, 100.0 / len(seen))
    add_lines(report, [], found, {}, SourceFiles())
    assert sum(line.eager_ops or 0 for line in report.lines) == whole
    assert all(abs((line.eager_ops or 0) - seen[(line.line or 0) - 1]) < 1 for line in report.lines)


def test_ops_of_no_cell_are_on_no_known_line(report: Report) -> None:
    found = Estimate(exact=True, eager=Sampled(10.0, 5_000.0))
    found.by_line["aten::add", A] = Sampled(6.0, 2_000.0)
    found.by_line["aten::mul", A] = Sampled(1.0, 500.0, 4.0)
    add_lines(report, [], found, {}, SourceFiles())
    assert of(report) == {("a.py", 1): (0, 7), (None, None): (0, 3)}
    times = {line.file: line.eager_time_us for line in report.lines}
    assert times == {"a.py": 2.5, None: 2.5}
    assert report.lines[0].eager_ops_spread in (0.0, 4.0)  # two standard errors


def test_kernels_share_their_time(report: Report, tmp_path: Path) -> None:
    report.kernels = page_report(tmp_path).kernels[:2]
    report.kernels[0].source_lines = ["a.py:1", "b.py:2"]
    report.kernels[0].device_time_total_us = 10.0
    report.kernels[1].device_time_total_us = 3.0
    add_lines(report, [], None, {}, SourceFiles())
    found = {line.file: (line.kernels, line.device_time_us) for line in report.lines}
    assert found == {"a.py": ([0], 5.0), "b.py": ([0], 5.0), None: ([1], 3.0)}


def test_no_more_lines_than_are_kept(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_lines, "MAX_LINES", 3)
    forward = Counter({Line("a.py", number, "f"): 1 for number in range(1, 9)})
    add_lines(report, [(GraphOps(forward_lines=forward), graph(2, 0))], None, {}, SourceFiles())
    assert sum(line.captured_ops or 0 for line in report.lines) == 16
    assert len(report.lines) == 4 and report.lines[0].file is None
    assert "further ones" in report.notes[-1]


def test_digests_are_of_the_text(report: Report, tmp_path: Path) -> None:
    path = tmp_path / "windows.py"
    path.write_bytes(b"x = 1\r\n")
    line = Line(str(path), 1, "f")
    ops = GraphOps(forward_lines=Counter({line: 1, A: 1}))
    add_lines(report, [(ops, graph(1, 0))], None, {}, SourceFiles())
    # printf 'x = 1\n' | sha256sum
    digests = {file.file: file.sha256 for file in report.files}
    assert digests == {str(path): SHA256_OF_X, "a.py": None}


SHA256_OF_X = "9e26bf369911c45c243c684147b23fc9e1dcfcf257d299a1c632016a6fcd33f4"
