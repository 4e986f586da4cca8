"""Private names of Dynamo that only a compilation reaches."""

from typing import Any

import torch

from instrumented_backend.torch_compat import dynamo, fx


def test_the_backend_look_up_can_be_patched() -> None:
    from torch._dynamo import eval_frame

    before = eval_frame.get_compiler_fn
    asked: list[Any] = []
    undo = dynamo.patch_backend_lookup(lambda backend: asked.append(backend) or backend)
    try:
        torch.compile(lambda x: x, backend="eager")
        assert [type(backend) for backend in asked] == [torch._TorchCompileWrapper]
        wrapper = asked[0]
        assert wrapper.kwargs == {} and wrapper.dynamic is None and callable(wrapper.compiler_fn)
    finally:
        undo()
    assert eval_frame.get_compiler_fn is before


def test_the_compile_context() -> None:
    seen: list[Any] = []

    def backend(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        compile_id = dynamo.current_compile_id()
        seen.append((str(compile_id), dynamo.is_compiled_autograd(compile_id)))
        seen.append(dynamo.subgraph_reason(gm))
        seen.append([fx.is_fake(value) for value in inputs])
        return gm

    torch._dynamo.reset()
    torch.compile(lambda x: x + 1, backend=backend)(torch.ones(2))
    assert seen[0] == ("0/0", False)
    assert seen[1].user_stack and not seen[1].graph_break and seen[1].reason
    assert dynamo.current_compile_id() is None


def test_how_often_a_compilation_started_over() -> None:
    attempts: list[int] = []

    def backend(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        attempts.append(dynamo.current_attempt())
        return gm

    def function(x: torch.Tensor) -> torch.Tensor:
        x = x + 1
        torch._dynamo.graph_break()  # only when it is met again, the graph before it is made
        return x * 2

    torch._dynamo.reset()
    torch.compile(function, backend=backend)(torch.ones(2))
    assert attempts == [1, 0]
    assert dynamo.current_attempt() == 0
