"""Counters of compilations inside compilations."""

import pytest
import torch

import instrumented_backend


def test_a_compilation_inside_a_compilation(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """One graph is compiled while Inductor compiles another: each has its own counts."""
    import torch._inductor.compile_fx as inductor
    import torch._inductor.metrics as metrics

    original = inductor.compile_fx_inner
    nested_results = []

    def compile_another_first(gm: torch.fx.GraphModule, inputs: object, **kwargs: object) -> object:
        if not nested_results:
            nested_results.append(None)
            module = torch.fx.symbolic_trace(lambda x: (x.cos() * 3,))
            nested_results[0] = instrumented_backend.instrumented(module, [torch.ones(16)])
        return original(gm, inputs, **kwargs)

    monkeypatch.setattr(inductor, "compile_fx_inner", compile_another_first)
    with torch._inductor.config.patch(force_disable_caches=True):
        before = {name: getattr(metrics, name) for name in metrics.get_metric_fields()}
        torch.compile(lambda x: x.sin().sum(), backend="instrumented")(torch.ones(8))
    report = instrumented_backend.report()
    outer, inner = report.graphs
    assert nested_results[0] is not None
    assert outer.inductor_metrics["generated_kernel_count"] > 0
    assert inner.inductor_metrics["generated_kernel_count"] > 0
    for name, start in before.items():
        moved = getattr(metrics, name) - start
        assert outer.inductor_metrics[name] + inner.inductor_metrics[name] == moved
