"""Every counter that a common program moves has its sentence."""

from sample_report import sample

from instrumented_backend.torch_compat import inductor_metrics
from instrumented_backend.views.meanings import meaning
from instrumented_backend.views.tables import TABLES
from instrumented_backend.views.text import render


def test_inductors_own_fields() -> None:
    missing = [
        name for name in inductor_metrics.fields() if meaning("inductor_metrics", name) is None
    ]
    assert missing == []


def test_groups_whose_counters_are_messages() -> None:
    assert meaning("graph_break", "Failed to trace print\n  Explanation: ...")
    assert meaning("of a later torch", "new") is None


def test_the_table_has_all_each_graph_and_none() -> None:
    # The sample's graph moved 1 metric and 1 cache hit; 2 frames belong to no graph.
    rows = TABLES["counters"].rows(sample())
    assert [(row["graph"], row["counter"], row["value"]) for row in rows] == [
        ("all", "generated_kernel_count", 1),
        ("all", "autograd_cache_hit", 1),
        ("all", "total", 2),
        (0, "generated_kernel_count", 1),
        (0, "autograd_cache_hit", 1),
        ("none", "total", 2),
    ]
    text = " ".join(render(sample(), ("counters",), 80).split())
    assert "aot_autograd.autograd_cache_hit: graphs found in the AOTAutograd cache" in text
    assert "frames.total: functions that Dynamo began to compile" in text
