"""Dynamo: the backend that it looks up, and the compilation that is under way."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import CodeType
from typing import Any

import torch

from instrumented_backend.torch_compat.hooks import Undo, replace_attribute

# Private names, by the versions of torch that have them.
NAMES = {
    "2.11 to 2.15": (
        "torch._TorchCompileInductorWrapper",
        "torch._dynamo.backends.distributed.DDPOptimizer.backend_compile_fn",
        "torch._dynamo.callback.CompilationCallbackHandler.install_callbacks",
        "torch._dynamo.config.suppress_errors",
        "torch._dynamo.convert_frame._compile(code)",
        "torch._dynamo.convert_frame._compile(compiler_fn)",
        "torch._dynamo.convert_frame._compile(one_graph)",
        "torch._dynamo.disable",
        "torch._dynamo.eval_frame.get_compiler_fn",
        "torch._dynamo.eval_frame.innermost_fn",
        "torch._dynamo.external_utils",
        "torch._dynamo.guards.get_and_maybe_log_recompilation_reasons(frame)",
        "torch._dynamo.utils.counters",
        "torch._guards.CompileContext.attempt",
        "torch._guards.CompileContext.current_compile_id",
        "torch._guards.CompileContext.try_get",
        "torch._guards.CompileId.compiled_autograd_id",
    ),
}

# What ``torch.compile`` makes of ``backend="inductor"`` before Dynamo sees it.
InductorWrapper = torch._TorchCompileInductorWrapper


def makes_sizes_dynamic() -> bool:
    """Does Dynamo make a size dynamic that has changed? Not with ``dynamic=False``."""
    import torch._dynamo.config as config

    return bool(getattr(config, "automatic_dynamic_shapes", False))


def patch_backend_lookup(convert: Callable[[Any], Any]) -> Undo:
    """Let ``convert`` replace what ``torch.compile`` gives to Dynamo as the backend.

    ``torch.compile`` wraps any backend but Inductor in a plain ``_TorchCompileWrapper``, which
    checks neither mode nor options before the first call. Its next step is ``get_compiler_fn``.
    """
    from torch._dynamo import eval_frame

    original = eval_frame.get_compiler_fn

    def get_compiler_fn(compiler_fn: Any) -> Any:
        return original(convert(compiler_fn))

    return replace_attribute(eval_frame, "get_compiler_fn", get_compiler_fn)


def is_inductor(backend: Any) -> bool:
    """Is it what Dynamo is given for Inductor? Not for AOTInductor, whose wrapper is another."""
    if isinstance(backend, str):
        return backend == "inductor"
    return type(backend) is InductorWrapper


def wrap_compiled(
    compiled: Callable[..., Any], wrap: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Callable[..., Any]:
    """``wrap`` what ``compile_fx`` returned, under its guard against being traced by Dynamo.

    ``compile_fx`` returns a function under ``torch._dynamo.disable``. Dynamo disables what a
    backend returns, too, and takes off a guard that is there already; it cannot see one inside
    a wrapper, and every call would pay for both (0.3 µs).
    """
    import torch._dynamo
    from torch._dynamo.eval_frame import innermost_fn

    inner = innermost_fn(compiled)
    if inner is compiled:
        return wrap(compiled)
    reason = getattr(compiled, "_torchdynamo_disable_msg", None)
    guarded: Callable[..., Any] = torch._dynamo.disable(wrap(inner), reason=reason)
    return guarded


def current_compile_id() -> Any:
    from torch._guards import CompileContext

    return CompileContext.current_compile_id()


def current_attempt() -> int:
    """How often Dynamo has restarted the compilation that is under way."""
    from torch._guards import CompileContext

    context = CompileContext.try_get()
    return 0 if context is None else int(context.attempt)


def is_compiled_autograd(compile_id: Any) -> bool:
    return compile_id is not None and compile_id.compiled_autograd_id is not None


def subgraph_reason(gm: torch.fx.GraphModule) -> Any:
    """Why the graph ended: ``.reason``, ``.user_stack``, ``.graph_break``; None outside Dynamo."""
    return getattr(gm, "compile_subgraph_reason", None)


def recompiled_frame() -> Any:
    """The call that Dynamo is recompiling for, while it reports why: ``f_code``, ``f_locals``...

    Read from the arguments of one of the callers; None where they can't be found.
    """
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "get_and_maybe_log_recompilation_reasons":
            return frame.f_locals.get("frame")
        frame = frame.f_back
    return None


@dataclass(frozen=True)
class CompilationUnderWay:
    """``others``: for a backend of torch's, not for ours.

    ``raises``: with ``fullgraph=True``, or in ``torch._dynamo.error_on_graph_break(True)``; of the
    latter it is known when a compilation has failed.
    """

    code: CodeType | None = None  # of the function
    others: bool = False
    raises: bool = False
    # Where Dynamo put a function of its own round one of torch's: name, file and line of that.
    wrapped: tuple[str, str, int] | None = None
    backend: Any = None  # as the look-up made it


def compilation_under_way() -> CompilationUnderWay:
    """The innermost compilation by Dynamo on this thread, read from its caller's arguments."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_name == "_compile" and code.co_filename.endswith("convert_frame.py"):
            scope = frame.f_locals
            backend = _innermost_backend(scope.get("compiler_fn"))
            return CompilationUnderWay(
                scope.get("code"),
                _is_others(backend),
                bool(
                    scope.get("one_graph")
                    or getattr(scope.get("convert_frame_box"), "error_on_graph_break", False)
                ),
                _wrapped(scope),
                backend,
            )
        frame = frame.f_back
    return CompilationUnderWay()


def _innermost_backend(backend: Any) -> Any:
    """Without Dynamo's wrappers; DDPOptimizer is one, too, and gives its own method for it."""
    while True:
        optimizer = getattr(backend, "__self__", None)
        if hasattr(backend, "_torchdynamo_orig_backend"):
            backend = backend._torchdynamo_orig_backend
        elif optimizer is not None and hasattr(optimizer, "backend_compile_fn"):
            backend = optimizer.backend_compile_fn
        else:
            return backend


def _wrapped(scope: Mapping[str, Any]) -> tuple[str, str, int] | None:
    """``nn.Sequential`` for ``inner`` of ``external_utils.py``, by which Dynamo calls a model that
    is of a class of torch's own."""
    code = scope.get("code")
    if code is None or code.co_name != "inner":
        return None
    if not code.co_filename.endswith(os.path.join("_dynamo", "external_utils.py")):
        return None
    called = (scope.get("locals") or {}).get("fn")
    if called is None:
        return None
    name = getattr(called, "__name__", type(called).__qualname__)
    # What is written in C++ has no place of its own.
    own = getattr(getattr(type(called), "forward", called), "__code__", code)
    return name, own.co_filename, own.co_firstlineno


def is_ours(backend: Any) -> bool:
    """Is it what the look-up made of our name, or what took Inductor's place?"""
    return isinstance(backend, InductorWrapper) and type(backend).__module__ != "torch"


def _is_others(backend: Any) -> bool:
    """A function of the program's is not: it may call ours."""
    if isinstance(backend, InductorWrapper):
        return not is_ours(backend)
    function = getattr(backend, "compiler_fn", backend)
    return str(getattr(function, "__module__", None)).startswith("torch.")


def patch_compile_callbacks(compiling: Callable[[], AbstractContextManager[None]]) -> Undo:
    """Enter ``compiling()`` while a thread compiles.

    For Dynamo's compilations, lazy backward ones and CUDA graph recordings. Dynamo's own callbacks
    are not told of a second thread, and are forgotten in ``torch._dynamo.reset()``.
    """
    from torch._dynamo.callback import CompilationCallbackHandler

    original = CompilationCallbackHandler.install_callbacks

    @contextlib.contextmanager
    def install_callbacks(self: Any, *args: Any, **kwargs: Any) -> Iterator[None]:
        with compiling(), original(self, *args, **kwargs):
            yield

    return replace_attribute(CompilationCallbackHandler, "install_callbacks", install_callbacks)


def suppresses_errors() -> bool:
    """Does the program want what fails to compile to run eagerly?"""
    import torch._dynamo.config

    return bool(torch._dynamo.config.suppress_errors)


def counters() -> Mapping[str, Mapping[str, int]]:
    from torch._dynamo.utils import counters

    return counters


def global_state(name: str) -> str | None:
    """The present value of what Dynamo's guard calls ``name``: ``grad_mode``, ``num_threads``..."""
    if name == "grad_mode":
        return str(torch.is_grad_enabled())
    if name == "num_threads":
        return str(torch.get_num_threads())
    if name == "deterministic_algorithms":
        return str(torch.are_deterministic_algorithms_enabled())
    if name.startswith("autocast(") and name.endswith(")_enabled"):
        return str(torch.is_autocast_enabled(name[len("autocast(") : -len(")_enabled")]))
    return None
