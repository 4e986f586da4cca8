"""Private names of Inductor that only a compilation reaches."""

from typing import Any

import torch

from instrumented_backend.torch_compat import inductor


def test_post_compile_can_be_patched() -> None:
    from torch._inductor.output_code import CompiledFxGraph

    before = CompiledFxGraph.post_compile
    loaded: list[Any] = []
    undo = inductor.patch_post_compile(loaded.append)
    try:
        torch._dynamo.reset()
        torch.compile(lambda x: x * 7 + 1)(torch.ones(3))
    finally:
        undo()
    assert CompiledFxGraph.post_compile is before
    (graph,) = loaded
    assert inductor.is_output_code(graph)
    assert not inductor.is_backward_code(graph)
    assert callable(graph.current_callable)
    key = inductor.fx_graph_key(graph)
    assert key is not None and key.startswith("f") and key.isalnum()
    with open(inductor.code_path(graph)) as file:
        assert file.read() == graph.source_code


def test_a_kernels_definition_can_be_watched() -> None:
    """Its name, and what its nodes were made from; undone afterwards."""
    from torch._inductor.codegen.cpp import CppScheduling

    before = CppScheduling.define_kernel
    defined: list[tuple[str, list[Any], Any]] = []
    undo = inductor.patch_kernel_definition(
        lambda name, nodes, kernel: defined.append(
            (name, list(inductor.kernel_origins(nodes)), kernel)
        )
    )
    try:
        torch._dynamo.reset()
        with torch._inductor.config.patch(force_disable_caches=True):
            torch.compile(lambda x: (x.cos() * 5).sum())(torch.ones(30))
    finally:
        undo()
    assert CppScheduling.define_kernel is before
    ((name, origins, kernel),) = defined
    assert name == "cpp_fused_cos_mul_sum_0" and kernel is None
    assert {aten for aten, _, _ in origins} == {"aten.cos", "aten.mul", "aten.sum"}
    assert {node for _, node, _ in origins} == {"cos", "mul", "sum_1"}
    assert all(stack and __file__ in stack for _, _, stack in origins)
