"""A drop-in for Inductor: same options, same errors, same features."""

import inspect
import pickle
import subprocess
import sys
from typing import Any

import pytest
import torch
from programs import RunProgram

import instrumented_backend


def small(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * 2


@pytest.mark.skipif(
    "name" not in inspect.signature(torch._TorchCompileWrapper.__init__).parameters,
    reason="this torch gives name= to Inductor alone",
)
def test_the_name_of_a_region_reaches_the_report(fresh: None) -> None:
    torch.compile(lambda x: x.sin(), backend="instrumented", name="mine")(torch.ones(3))
    (graph,) = instrumented_backend.report().graphs
    assert graph.name == "mine"


@pytest.mark.full
def test_by_name_without_an_import(run_forked: RunProgram) -> None:
    done = run_forked("""
        import torch
        print(torch.compile(lambda x: x + 1, backend="instrumented")(torch.ones(2)).tolist())
    """)
    assert done.stdout == "[2.0, 2.0]\n"
    assert "instrumented: 1 graph, 1 call (+0 backward)" in done.stderr


@pytest.mark.parametrize(
    "imports",
    [
        "import instrumented_backend",
        pytest.param("import torch._dynamo, instrumented_backend", marks=pytest.mark.full),
        "from instrumented_backend import instrumented; import torch._dynamo",
        pytest.param(
            "import torch; torch._dynamo.list_backends(); import instrumented_backend.backend",
            marks=pytest.mark.full,
        ),
    ],
)
def test_importing_it_as_well_is_fine(run_forked: RunProgram, imports: str) -> None:
    done = run_forked(f"""
        {imports}
        import torch
        assert "instrumented" in torch._dynamo.list_backends()
        torch.compile(lambda x: x + 1, backend="instrumented")(torch.ones(2))
        torch.compile(lambda x: x + 2, backend="instrumented")(torch.ones(2))
    """)
    assert done.report["summary"]["graphs"] == 2


def test_importing_it_imports_neither_dynamo_nor_inductor() -> None:
    code = (
        "import sys, torch, instrumented_backend; "
        "print([m for m in ('torch._dynamo', 'torch._inductor') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == "[]\n"


def test_the_callable_itself(fresh: None) -> None:
    compiled = torch.compile(small, backend=instrumented_backend.instrumented)
    assert torch.equal(compiled(torch.ones(3)), small(torch.ones(3)))
    assert instrumented_backend.report().summary.graphs == 1


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "no-such-mode"},
        {"options": {"no_such_option": 1}},
        {"options": {"max_autotune": "yes"}},
    ],
    ids=["mode", "option", "type"],
)
def test_bad_modes_and_options_fail_as_with_inductor(options: dict[str, Any]) -> None:
    with pytest.raises(RuntimeError) as theirs:
        torch.compile(small, backend="inductor", **options)
    with pytest.raises(RuntimeError) as ours:
        torch.compile(small, backend="instrumented", **options)
    assert type(ours.value) is type(theirs.value)
    assert str(ours.value) == str(theirs.value)
    assert "\n" not in str(ours.value)


def test_options_reach_inductor(fresh: None) -> None:
    torch.compile(
        small,
        backend="instrumented",
        options={"trace.graph_diagram": False, "epilogue_fusion": True},
    )(torch.ones(3))
    (graph,) = instrumented_backend.report().graphs
    assert graph.config == {"trace.graph_diagram": "False", "epilogue_fusion": "True"}


def test_plain_inductor_in_the_same_process_stays_plain(fresh: None) -> None:
    ours = torch.compile(small, backend="instrumented")
    theirs = torch.compile(small)
    x = torch.ones(3, requires_grad=True)
    for _ in range(2):
        theirs(x).sum().backward()
    ours(x).sum().backward()
    (graph,) = instrumented_backend.report().graphs
    assert (graph.calls, graph.backward_calls) == (1, 1)


def test_two_wrappers_of_one_function_compile_it_once(fresh: None) -> None:
    for _ in range(2):
        torch.compile(small, backend="instrumented")(torch.ones(3))
    (graph,) = instrumented_backend.report().graphs
    assert graph.calls == 2


def test_fullgraph_raises_as_with_inductor(fresh: None) -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x + 1

    messages = []
    for backend in ("inductor", "instrumented"):
        torch._dynamo.reset()
        with pytest.raises(torch._dynamo.exc.Unsupported) as error:
            torch.compile(broken, backend=backend, fullgraph=True)(torch.ones(3))
        messages.append(str(error.value))
    assert messages[0] == messages[1]


def test_errors_while_running_are_the_programs(fresh: None) -> None:
    def gather(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return x[i] + 1

    compiled = torch.compile(gather, backend="instrumented")
    with pytest.raises(RuntimeError, match="out of bounds"):
        compiled(torch.ones(3), torch.tensor([9]))


def test_autocast_and_inference_mode(fresh: None) -> None:
    linear = torch.nn.Linear(8, 8)
    x = torch.randn(2, 8)
    results = []
    for backend in ("instrumented", "inductor"):
        torch._dynamo.reset()
        compiled = torch.compile(linear, backend=backend)
        with torch.autocast("cpu", torch.bfloat16):
            results.append(compiled(x))
        with torch.inference_mode():
            results.append(compiled(x))
    assert results[0].dtype == torch.bfloat16
    assert torch.equal(results[0], results[2]) and torch.equal(results[1], results[3])


def test_freezing(fresh: None) -> None:
    import torch._inductor.config as config

    linear = torch.nn.Linear(8, 8).eval()
    x = torch.randn(2, 8)
    with torch.no_grad(), config.patch(freezing=True):
        ours = torch.compile(linear, backend="instrumented")(x)
        torch._dynamo.reset()
        theirs = torch.compile(linear, backend="inductor")(x)
    assert torch.equal(ours, theirs)
    (graph,) = instrumented_backend.report().graphs
    assert graph.calls == 1 and graph.code


@pytest.mark.full
def test_compiled_autograd(fresh: None) -> None:
    def gradients(backend: str) -> torch.Tensor:
        torch._dynamo.reset()
        x = torch.ones(4, requires_grad=True)
        compiled = torch.compile(small, backend=backend)
        with torch._dynamo.config.patch(compiled_autograd=True):

            @torch.compile(backend=backend)
            def step() -> None:
                compiled(x).sum().backward()

            step(), step()
        assert x.grad is not None
        return x.grad

    ours = gradients("instrumented")
    report = instrumented_backend.report()
    assert torch.equal(ours, gradients("inductor"))
    backward = [graph for graph in report.graphs if graph.direction == "backward"]
    assert backward and all(graph.compile_id.startswith("!") for graph in backward)
    assert report.summary.backward_calls == 2
    assert all(graph.calls == 0 for graph in backward)


def test_swapped_parameters(fresh: None) -> None:
    """``m.double()`` fails if a graph of an unregistered backend still holds the parameters."""
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        linear = torch.nn.Linear(4, 4)
        compiled = torch.compile(linear, backend="instrumented")
        compiled(torch.ones(2, 4))
        linear.double()
        assert compiled(torch.ones(2, 4).double()).dtype == torch.float64
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


def test_aot_compile(run_forked: RunProgram, tmp_path: Any) -> None:
    done = run_forked(f"""
        import torch
        def f(x): return x.sin() * 2
        with torch._dynamo.config.patch(enable_aot_compile=True):
            compiled = torch.compile(f, backend="instrumented", fullgraph=True)
            saved = compiled.aot_compile(((torch.ones(4),), {{}}))
        for _ in range(3):
            assert torch.allclose(saved(torch.ones(4)), f(torch.ones(4)))
        saved.save_compiled_function({str(tmp_path / "saved")!r})
    """)
    (graph,) = done.report["graphs"]
    assert graph["calls"] == 3


@pytest.mark.full
def test_ddp_optimizer_calls_on_fake_tensors_are_not_counted(run_forked: RunProgram) -> None:
    done = run_forked("""
        import torch, torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel
        dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(3)))
            def forward(self, x):
                return self.layers(x)
        model = DistributedDataParallel(Model(), bucket_cap_mb=1)
        compiled = torch.compile(model, backend="instrumented")
        for _ in range(4):
            compiled(torch.ones(2, 512)).sum().backward()
        dist.destroy_process_group()
    """)
    graphs = done.report["graphs"]
    assert len(graphs) >= 2, "DDPOptimizer should have split the model into buckets"
    assert [(graph["calls"], graph["backward_calls"]) for graph in graphs] == [(4, 4)] * len(graphs)


def test_dynamo_explains_its_config(fresh: None) -> None:
    compiled = torch.compile(small, backend="instrumented", options={"max_autotune": True})
    assert compiled(torch.ones(3)).shape == (3,)
    assert torch.compile(small, backend="inductor").get_compiler_config() is not None
    assert compiled.get_compiler_config()["max_autotune"] is True


def test_a_config_override_for_one_graph(fresh: None) -> None:
    with torch._dynamo.config.patch(debug_inductor_config_override="0:max_autotune=False"):
        assert torch.compile(small, backend="instrumented")(torch.ones(3)).shape == (3,)


def test_disable_is_plain_inductor(run_forked: RunProgram) -> None:
    done = run_forked(
        """
        import logging, torch
        f = torch.compile(lambda x: x + 1, backend="instrumented")
        f(torch.ones(2))
        from torch._inductor.output_code import CompiledFxGraph
        assert CompiledFxGraph.post_compile.__module__ == "torch._inductor.output_code"
        assert type(logging.getLogger("torch.__trace").handlers) is list
        """,
        env={"INSTRUMENTED_DISABLE": "1"},
    )
    assert done.stderr == "" and done.reports == []


def test_the_compiled_function_keeps_inductors_attributes(fresh: None) -> None:
    seen = []

    def watching(gm: Any, inputs: Any) -> Any:
        compiled = instrumented_backend.instrumented(gm, inputs)
        seen.append(compiled)
        return compiled

    torch.compile(small, backend=watching)(torch.ones(3))
    assert all(hasattr(seen[0], name) for name in ("named_parameters", "zero_grad", "serialize"))


def test_settings_error_pickles_and_is_a_value_error() -> None:
    from instrumented_backend.settings import SettingsError

    assert issubclass(SettingsError, ValueError)
    assert str(pickle.loads(pickle.dumps(SettingsError("x")))) == "x"
