"""The private names of Dynamo are there, and do what we take them to do."""

import inspect
import sys
from typing import Any

import torch

from instrumented_backend.torch_compat import dynamo


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
