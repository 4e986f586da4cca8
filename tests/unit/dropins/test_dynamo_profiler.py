"""The repaired API of torch._dynamo.profiler."""

import pytest
import torch

from instrumented_backend.profiling import (
    ProfileMetrics,
    Profiler,
    ProfileResult,
    print_missing,
)


def test_plain_eager_is_all_missing() -> None:
    x = torch.randn(4, 8)
    profiler = Profiler()
    with profiler.prof, torch.no_grad():
        for _ in range(10):
            x.add(1).mul(2)
    result = profiler.results()
    assert (result.captured.operators, result.total.operators) == (0, 20)
    assert result.percent().operators == 0


def test_metrics() -> None:
    one, two = ProfileMetrics(10.0, 4, 3, 1), ProfileMetrics(30.0, 4, 5, 3)
    total = one + two
    assert total == ProfileMetrics(40.0, 8, 8, 4) and one == ProfileMetrics(10.0, 4, 3, 1)
    one += two
    assert one == total
    assert total / 4 == ProfileMetrics(10.0, 2, 2, 1)
    assert two / total == ProfileMetrics(0.75, 0.5, 0.625, 0.75)
    assert total / ProfileMetrics() == total  # nothing to divide by
    assert str(two / total) == " 50% ops  75% time"
    assert (two / total).tocsv() == [0.5, 0.75]


def test_results_add_up() -> None:
    result = ProfileResult(ProfileMetrics(1.0, 1, 0, 1), ProfileMetrics(2.0, 4, 0, 1), 1)
    result += ProfileResult(ProfileMetrics(3.0, 3, 0, 2), ProfileMetrics(6.0, 4, 0, 2), 2)
    assert (result.unique_graphs, result.captured.graphs, result.total.operators) == (3, 3, 8)
    assert result.percent() == ProfileMetrics(0.5, 0.5, 0.0, 1.0)


def test_print_missing_once(capsys: pytest.CaptureFixture[str]) -> None:
    stack = ["a.py(1): main", "b.py(2): f", "<built-in add>", "c.py(3): g", "d.py(4): h"]
    print_missing(stack)
    print_missing(stack)
    assert capsys.readouterr().out == "MISSING b.py(2): f >> c.py(3): g >> d.py(4): h\n"
