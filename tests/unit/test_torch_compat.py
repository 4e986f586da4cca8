"""Every private name of torch that we use is still there, and does what we take it to do."""

import contextlib
import dataclasses
import inspect
import logging
import sys
import types
from typing import Any

import pytest
import torch

from instrumented_backend.torch_compat import (
    cudagraphs,
    dynamo,
    hooks,
    inductor,
    inductor_metrics,
    machine,
    profilers,
    trace_log,
)


def test_the_backend_registry() -> None:
    from torch._dynamo.backends import registry

    import instrumented_backend  # noqa: F401

    assert hooks.BACKEND_NAME in registry._BACKENDS


def test_compile_fx_keywords() -> None:
    from torch._inductor.compile_fx import compile_fx

    parameters = inspect.signature(compile_fx).parameters
    assert set(inductor.compile_fx_keywords("name")) <= set(parameters)
    assert {"inner_compile", "config_patches"} <= set(parameters)


def test_inductors_own_wrapper() -> None:
    wrapper = torch._TorchCompileInductorWrapper("max-autotune-no-cudagraphs", None, None)
    assert wrapper.config["max_autotune"] is True


def test_compiled_functions_come_under_one_guard() -> None:
    """Dynamo takes a guard off what a backend returns; ours must not hide one."""
    inner = lambda x: x  # noqa: E731
    guarded = torch._dynamo.disable(inner, reason="because")
    wrapped: list[Any] = []

    def wrap(compiled: Any) -> Any:
        wrapped.append(compiled)
        return lambda x: compiled(x)

    result = dynamo.wrap_compiled(guarded, wrap)
    assert wrapped == [inner]
    assert result._torchdynamo_disable_msg == "because"
    assert dynamo.wrap_compiled(inner, wrap)(3) == 3 and wrapped == [inner, inner]


def test_counters_and_metrics() -> None:
    assert "generated_kernel_count" in inductor_metrics.metric_fields()
    assert set(inductor_metrics.metric_values()) == set(inductor_metrics.metric_fields())
    assert isinstance(dynamo.dynamo_counters(), dict)


def test_metric_tables_can_be_patched() -> None:
    from torch._inductor import metrics
    from torch._inductor.codegen import halide, triton

    assert inductor_metrics.inductor_metrics() is metrics
    before, log = dict(metrics.REGISTERED_METRIC_TABLES), metrics.log_kernel_metadata
    assert inductor_metrics.registered_metric_tables() == tuple(before)
    # Who logs kernels, and by which name: the module's, or one of its own.
    assert triton.metrics is metrics and halide.log_kernel_metadata is log
    logged: list[str] = []
    undo = inductor_metrics.patch_metric_tables(
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

    assert inductor_metrics.metric_tables_asked({}) == config.enabled_metric_tables == ""
    assert inductor_metrics.metric_tables_asked({"enabled_metric_tables": "a"}) == "a"
    with config.patch(enabled_metric_tables="graph_stats"):
        assert inductor_metrics.metric_tables_asked({}) == "graph_stats"


def test_the_benchmark_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["bench.py"])
    assert inductor_metrics.benchmark_name() is None
    monkeypatch.setattr(sys, "argv", ["bench.py", "--only=resnet18"])
    assert inductor_metrics.benchmark_name() == "resnet18"


def test_graph_ids_of_the_scheduler() -> None:
    first = inductor_metrics.next_scheduler_graph_id()
    assert inductor_metrics.next_scheduler_graph_id() == first + 1


def test_inductors_cache_folder(inductor_cache: Any) -> None:
    assert inductor.cache_folder() == str(inductor_cache)


def test_the_trace_log_is_selective() -> None:
    from torch._dynamo.utils import dynamo_timed
    from torch._logging import trace_structured

    class Keep(logging.Handler):
        def __init__(self) -> None:
            super().__init__()
            self.kept: list[str] = []

        def emit(self, record: logging.LogRecord) -> None:
            self.kept += [key for key in record.metadata if key in ("wanted", "artifact", "other")]

    logger = logging.getLogger(trace_log.TRACE_LOGGER)
    before = logger.handlers
    logger.handlers = []
    handler = Keep()
    rendered: list[str] = []
    marks: list[dict[str, Any]] = []
    undo = trace_log.listen_to_trace_log(
        handler, frozenset({"wanted"}), frozenset({"this"}), marks.append
    )
    try:
        for event, name in (
            ("wanted", ""),
            ("other", ""),
            ("artifact", "this"),
            ("artifact", "that"),
        ):
            trace_structured(
                event,
                metadata_fn=lambda name=name: {"name": name},
                payload_fn=lambda event=event, name=name: rendered.append(event + name) or "",
                expect_trace_id=False,
            )
        assert handler.kept == ["wanted", "artifact"]
        assert rendered == ["wanted", "artifactthis"]
        # Marks of time are read as they are.
        with dynamo_timed("a step"):
            pass
        assert [(mark["ph"], mark["name"]) for mark in marks] == [("B", "a step"), ("E", "a step")]
        assert handler.kept == ["wanted", "artifact"]
        # Somebody else who listens gets everything.
        logger.addHandler(logging.NullHandler())
        trace_structured("other", payload_fn=lambda: "", expect_trace_id=False)
        assert handler.kept == ["wanted", "artifact", "other"]
    finally:
        undo()
        logger.handlers = before


def test_the_call_that_is_recompiled_can_be_found() -> None:
    from torch._dynamo import guards

    reasons = guards.get_and_maybe_log_recompilation_reasons
    assert "frame" in inspect.signature(reasons).parameters
    assert dynamo.recompiled_frame() is None

    def get_and_maybe_log_recompilation_reasons(frame: Any) -> Any:
        return dynamo.recompiled_frame()

    here = sys._getframe()
    assert get_and_maybe_log_recompilation_reasons(here) is here


def test_the_compilation_under_way_can_be_found() -> None:
    from torch._dynamo import convert_frame

    names = inspect.signature(convert_frame._compile).parameters
    assert {"code", "compiler_fn", "one_graph"} <= set(names)
    assert dynamo.compilation_under_way() == dynamo.CompilationUnderWay()
    scope: dict[str, Any] = {"find": dynamo.compilation_under_way}
    source = "def _compile(code, compiler_fn, one_graph): return find()"
    exec(compile(source, "/torch/_dynamo/convert_frame.py", "exec"), scope)
    others = {
        name: scope["_compile"](None, torch._dynamo.eval_frame.get_compiler_fn(backend), True)
        for name, backend in {
            "inductor": "inductor",
            "eager": "eager",
            "ours": "instrumented",
            "the program's": lambda gm, inputs: gm,
        }.items()
    }
    assert all(found.raises for found in others.values())
    assert {name for name, found in others.items() if found.others} == {"inductor", "eager"}
    assert not dynamo.suppresses_errors()


def test_global_state() -> None:
    with torch.no_grad(), torch.autocast("cpu"):
        assert dynamo.global_state("grad_mode") == "False"
        assert dynamo.global_state("autocast(cpu)_enabled") == "True"
    assert dynamo.global_state("num_threads") == str(torch.get_num_threads())
    assert dynamo.global_state("deterministic_algorithms") == "False"
    assert dynamo.global_state("something of a later torch") is None


def test_trees_of_cuda_graphs_can_be_patched() -> None:
    from torch._inductor import cudagraph_trees, cudagraph_utils

    manager = cudagraph_trees.CUDAGraphTreeManager
    record, execute = manager.record_function, manager.execute_node
    assert list(inspect.signature(record).parameters) == ["self", "new_inputs", "function_id"]
    assert list(inspect.signature(execute).parameters) == ["self", "node", "new_inputs"]
    attributes = inspect.getsource(manager)
    for name in ("self.compile_id =", "self.mode", "self.roots:", "self.current_node = node"):
        assert name in attributes
    node = inspect.getsource(cudagraph_trees.CUDAGraphNode)
    assert "self.children:" in node and "def check_invariants" in node
    assert cudagraph_trees.CompilationMode.BACKWARD
    assert [field.name for field in dataclasses.fields(cudagraph_trees.FunctionID)] == ["id"]
    skips = logging.NullHandler()
    undo = cudagraphs.patch_cudagraphs(
        lambda *_: None, lambda _: None, skips, contextlib.nullcontext
    )
    assert (
        manager.record_function is not record and skips in cudagraph_utils.cudagraphs_log.handlers
    )
    undo()
    assert (manager.record_function, manager.execute_node) == (record, execute)
    assert skips not in cudagraph_utils.cudagraphs_log.handlers
    assert cudagraphs.cudagraph_pool_bytes() is None or torch.cuda.is_available()
    assert "include_traces" in inspect.signature(torch.cuda.memory_snapshot).parameters


def test_the_profiler_gate() -> None:
    profiler = profilers.profiler_state()
    assert profiler._is_profiler_enabled is False
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as prof:
        assert profiler._is_profiler_enabled is True
        with profilers.record_function_fast()("a region"):
            torch.ones(1)
    assert "a region" in [event.name for event in prof.events()]


def test_profilers_are_noticed_as_they_come_and_go() -> None:
    seen: list[bool] = []
    original = profilers.profiler_state()._set_is_profiler_enabled
    undo = profilers.watch_profiler_state(seen.append)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        assert seen == [False, True]
    with torch.autograd.profiler.profile():
        assert seen == [False, True, False, True]
    assert seen[-1] is False
    undo()
    assert profilers.profiler_state()._set_is_profiler_enabled is original


def test_after_import(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    (tmp_path / "imported_later.py").write_text("value = 1")
    monkeypatch.syspath_prepend(str(tmp_path))
    seen: list[types.ModuleType] = []
    hooks.after_import("imported_later", seen.append)
    assert seen == []
    finders = len(sys.meta_path)
    import imported_later  # type: ignore[import-not-found]

    assert seen == [imported_later]
    assert len(sys.meta_path) == finders - 1
    assert type(imported_later.__loader__).__module__ != hooks.__name__
    assert imported_later.__spec__.loader is imported_later.__loader__
    hooks.after_import("imported_later", seen.append)
    assert seen == [imported_later] * 2


def test_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    assert machine.rank() == 0
    monkeypatch.setenv("RANK", "3")
    assert machine.rank() == 3
    monkeypatch.setenv("RANK", "²")
    assert machine.rank() == 0


def test_generated_modules_of_the_process() -> None:
    from torch._inductor.codecache import PyCodeCache

    assert inductor.generated_modules() == PyCodeCache.modules


def test_autotuners_without_a_cache() -> None:
    from torch._inductor.runtime import autotune_cache, triton_heuristics

    cache = autotune_cache.AutotuneCache
    # Where the name that is patched is looked up.
    assert triton_heuristics.AutotuneCache is cache
    before = cache.__dict__["create"]
    undo = inductor.patch_autotune_cache()
    try:
        assert cache.create({"autotune_local_cache": True}, "/tmp/kernel.py", "hash") is None
    finally:
        undo()
    assert cache.__dict__["create"] is before and isinstance(before, staticmethod)


def test_inductors_own_bytes_of_a_kernel() -> None:
    """The method is there; what it says is checked on a GPU, where Triton kernels are."""
    from torch._inductor.codegen.simd import SIMDKernel

    assert callable(SIMDKernel.estimate_kernel_num_bytes)
    part = types.SimpleNamespace(estimate_kernel_num_bytes=lambda: 12.0)
    assert inductor.kernel_bytes(part) == 12
    assert inductor.kernel_bytes(types.SimpleNamespace(sub_kernels=[part, part])) == 24
    assert inductor.kernel_bytes(types.SimpleNamespace()) is None
