"""The drop-in for torch._inductor.metrics, around a compilation."""

import torch
from torch._inductor import metrics as inductor

from instrumented_backend import metrics


def test_cached_metrics_around_a_compilation() -> None:
    torch._dynamo.reset()
    metrics.reset()
    ours, theirs = metrics.CachedMetricsHelper(), inductor.CachedMetricsHelper()
    with torch.no_grad():
        torch.compile(lambda x: (x + 1).relu().sum())(torch.ones(50))
    deltas = ours.get_deltas()
    assert deltas == theirs.get_deltas()
    assert isinstance(deltas, metrics.CachedMetricsDeltas)
    assert deltas.generated_kernel_count == inductor.generated_kernel_count > 0
    assert list(vars(deltas)) == metrics.get_metric_fields() == inductor.get_metric_fields()
    metrics.CachedMetricsHelper.apply_deltas(deltas)
    assert inductor.generated_kernel_count == 2 * deltas.generated_kernel_count
    metrics.reset()
    assert inductor.generated_kernel_count == metrics.ir_nodes_pre_fusion == 0
