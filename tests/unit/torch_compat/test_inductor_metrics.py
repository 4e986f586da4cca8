"""Inductor's counters and metric tables are where we look for them."""

import inspect
import sys

import pytest

from instrumented_backend.torch_compat import dynamo, inductor_metrics


def test_counters_and_metrics() -> None:
    assert "generated_kernel_count" in inductor_metrics.fields()
    assert set(inductor_metrics.values()) == set(inductor_metrics.fields())
    assert isinstance(dynamo.counters(), dict)


def test_metric_tables_can_be_patched() -> None:
    from torch._inductor import metrics
    from torch._inductor.codegen import halide, triton

    assert inductor_metrics.module() is metrics
    before, log = dict(metrics.REGISTERED_METRIC_TABLES), metrics.log_kernel_metadata
    assert inductor_metrics.registered_tables() == tuple(before)
    # Who logs kernels, and by which name: the module's, or one of its own.
    assert triton.metrics is metrics and halide.log_kernel_metadata is log
    logged: list[str] = []
    undo = inductor_metrics.patch_tables(
        lambda table: f"our {table.table_name}", lambda name, path, code: logged.append(name)
    )
    try:
        assert metrics.get_metric_table("graph_stats") == "our graph_stats"
        metrics.log_kernel_metadata("one", "", "")
        halide.log_kernel_metadata("two", "", "")
        assert logged == ["one", "two"]
    finally:
        undo()
    assert before == metrics.REGISTERED_METRIC_TABLES
    assert metrics.log_kernel_metadata is halide.log_kernel_metadata is log


def test_the_multi_kernel_row_can_be_patched() -> None:
    from torch._inductor.codegen.multi_kernel import MultiKernelCall
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    before = MultiKernelCall._metrics_table_row
    undo = inductor_metrics.patch_multi_kernel_row(lambda call, timings: {"timings": timings})
    try:
        call = MultiKernelCall.__new__(MultiKernelCall)
        assert call._metrics_table_row([1.0]) == {"timings": [1.0]}
    finally:
        undo()
    assert MultiKernelCall._metrics_table_row is before
    assert isinstance(MultiKernelCall.kernels, property)
    assert {"filename", "size_hints", "inductor_meta"} <= set(
        inspect.signature(CachingAutotuner.__init__).parameters
    )


def test_remote_compilations_can_be_patched(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import compile_fx_ext, config

    base = compile_fx_ext._SerializedFxCompile
    remote = compile_fx_ext._OutOfProcessFxCompile
    monkeypatch.setattr(
        base, "serialize_compile", lambda self, gm: (gm, config.enabled_metric_tables)
    )
    undo = inductor_metrics.patch_remote_compile()
    try:
        with config.patch(enabled_metric_tables="graph_stats"):
            assert remote.serialize_compile(None, "gm") == ("gm", "")
            assert config.enabled_metric_tables == "graph_stats"
    finally:
        undo()
    assert remote.serialize_compile is base.serialize_compile


def test_which_metric_tables_are_asked_for() -> None:
    from torch._inductor import config

    assert inductor_metrics.tables_asked({}) == config.enabled_metric_tables == ""
    assert inductor_metrics.tables_asked({"enabled_metric_tables": "a"}) == "a"
    with config.patch(enabled_metric_tables="graph_stats"):
        assert inductor_metrics.tables_asked({}) == "graph_stats"


def test_the_benchmark_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["bench.py"])
    assert inductor_metrics.benchmark_name() is None
    monkeypatch.setattr(sys, "argv", ["bench.py", "--only=resnet18"])
    assert inductor_metrics.benchmark_name() == "resnet18"


def test_graph_ids_of_the_scheduler() -> None:
    first = inductor_metrics.next_scheduler_graph_id()
    assert inductor_metrics.next_scheduler_graph_id() == first + 1
