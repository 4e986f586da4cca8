"""What ``torch.compile`` returned: its calls, their stances, and what Dynamo skipped in them."""

import functools
import itertools
import operator
import os
import sys
import threading
from collections.abc import Callable
from types import CodeType
from typing import Any

import torch

from instrumented_backend.torch_compat.hooks import Undo, replace_attribute

# Private names, by the versions of torch that have them.
NAMES = {
    "2.11 to 2.15": (
        "torch._dynamo.config.disable",
        "torch._dynamo.convert_frame.CatchErrorsWrapper",
        "torch._dynamo.convert_frame.FRAME_COMPILE_COUNTER",
        "torch._dynamo.decorators._set_stance",
        "torch._dynamo.disable",
        "torch._dynamo.eval_frame.OptimizeContext",
        "torch._dynamo.eval_frame._NullDecorator",
        "torch._dynamo.eval_frame._TorchDynamoContext.__call__",
        "torch._dynamo.eval_frame._TorchDynamoContext.callback",
        "torch._dynamo.eval_frame._TorchDynamoContext.enter_exit_hooks",
        "torch._dynamo.eval_frame.innermost_backend",
        "torch._dynamo.eval_frame._stance",
        "torch._dynamo.eval_frame.innermost_fn",
        "torch._dynamo.eval_frame.nothing",
        "torch._dynamo.eval_frame._optimize",
        "torch._dynamo.eval_frame.skip_code",
        "torch._C._len_torch_dispatch_stack",
        "torch._dynamo.external_utils.wrap_inline",
        "torch._dynamo.trace_rules.check",
        "torch._guards.TracingContext.get_traced_code",
        "torch._inductor.list_mode_options",
    ),
    "2.13 to 2.15": ("torch._dynamo.convert_frame.add_skip_reason",),
}

SWITCH = "TORCHDYNAMO_DISABLE"
DEFAULT_STANCE = "default"
FORCED_BACKEND = "force_backend"
FAILING_STANCE = "fail_on_recompile"
_MOST_CALLS = 1 << 62


class Calls:
    """How often what one ``torch.compile`` returned is called: exactly, from any thread.

    Each call runs the hooks of its context, and then what each of them returned. In the place of
    torch's own hook is an iterator's ``__next__`` that calls it: no Python of ours runs, and there
    is no second hook, which costs a call 0.1 to 0.7 µs. How much is left of the iterator that has
    the arguments tells how often it ran.
    """

    def __init__(self, context: Any) -> None:
        from torch._dynamo import eval_frame

        hooks = context.enter_exit_hooks
        torchs = hooks.pop() if hooks else lambda: eval_frame.nothing
        self._left = itertools.repeat((), _MOST_CALLS)
        hooks.append(itertools.starmap(torchs, self._left).__next__)

    @property
    def value(self) -> int:
        return _MOST_CALLS - operator.length_hint(self._left)


def on_call(context: Any, called: Callable[[], None]) -> None:
    """Call ``called()`` whenever what one ``torch.compile`` returned is called, before it runs."""
    from torch._dynamo import eval_frame

    def enter() -> Callable[[], None]:
        called()
        return eval_frame.nothing

    context.enter_exit_hooks.append(enter)


def compilations() -> int:
    """How many Dynamo has begun in this process, those of recompiles with them."""
    from torch._dynamo import convert_frame

    return sum(convert_frame.FRAME_COMPILE_COUNTER.values())


def mode_options(mode: str, dynamic: bool | None) -> dict[str, Any]:
    """What a mode of ``torch.compile`` stands for."""
    from torch._inductor import list_mode_options

    return dict(list_mode_options(mode, dynamic))


def patch_compiled(made: Callable[[Any, Any], None]) -> Undo:
    """Call ``made(context, function)`` whenever Dynamo has wrapped a function or a module.

    ``context`` is the object behind one ``torch.compile``, which has its backend and its hooks.
    """
    import torch._dynamo
    from torch._dynamo import eval_frame

    kind = eval_frame._TorchDynamoContext
    original = kind.__call__
    notify = torch._dynamo.disable(made)
    wrapping = threading.local()

    def __call__(self: Any, function: Any) -> Any:
        # For a module, a context calls itself with the module's method.
        outer: set[int] = wrapping.__dict__.setdefault("contexts", set())
        if id(self) in outer or not isinstance(self, eval_frame.OptimizeContext):
            return original(self, function)
        outer.add(id(self))
        try:
            wrapped = original(self, function)
        finally:
            outer.discard(id(self))
        notify(self, function)
        return wrapped

    eval_frame.skip_code(__call__.__code__)
    return replace_attribute(kind, "__call__", functools.wraps(original)(__call__))


def backend_of(context: Any) -> Any:
    """What the program gave to ``torch.compile`` as the backend, as the look-up made it."""
    from torch._dynamo.eval_frame import innermost_backend

    return innermost_backend(context.callback)


def innermost(function: Any) -> Any:
    """Without the wrappers of ``torch.compile`` and ``torch.compiler.disable``.

    Nor in the function that Dynamo puts round what it would skip: ``inner`` with ``fn`` in it.
    """
    from torch._dynamo.eval_frame import innermost_fn

    function = innermost_fn(function)
    code = getattr(function, "__code__", None)
    if code is not None and is_entry(code):
        inside = dict(zip(code.co_freevars, function.__closure__, strict=True))
        return inside["fn"].cell_contents
    return function


def is_entry(code: CodeType) -> bool:
    """Is it of the function that Dynamo puts round what it would skip, such as ``nn.Linear``?"""
    from torch._dynamo.external_utils import wrap_inline

    return code in wrap_inline.__code__.co_consts


def in_dispatch_mode() -> bool:
    """Is a ``TorchDispatchMode`` active, such as ``FlopCounterMode``? Dynamo compiles nothing."""
    return bool(torch._C._len_torch_dispatch_stack())


def is_disabled(function: Any) -> bool:
    """Is it under ``torch.compiler.disable``?"""
    return bool(getattr(function, "_torchdynamo_disable", False))


def traced_code() -> list[CodeType]:
    """All functions that became a part of the graph under way, the outermost first."""
    from torch._guards import TracingContext

    return list(TracingContext.get_traced_code() or ())


def is_skipped(code: CodeType) -> bool:
    """Does Dynamo refuse this function wherever it meets it, as it does torch's own?"""
    from torch._dynamo import trace_rules

    return bool(trace_rules.check(code))


def is_switched_off() -> bool:
    """``torch._dynamo.config.disable``, at this moment."""
    import torch._dynamo.config

    return bool(torch._dynamo.config.disable)


def is_off() -> bool:
    """Does the environment have ``torch.compile`` return what it is given?"""
    return os.environ.get(SWITCH) == "1"


def watch_off(made: Callable[[Any, Any], None]) -> Undo:
    """Call ``made(backend, function)`` for each ``torch.compile`` that returns what it is given.

    Torch looks up no backend then, and nobody could count the calls. A program that says so itself,
    with ``disable=True``, is left alone.
    """
    from torch._dynamo import eval_frame

    original = eval_frame._optimize

    def _optimize(rebuild_ctx: Any, backend: Any = "inductor", **keywords: Any) -> Any:
        decorator = original(rebuild_ctx, backend, **keywords)
        if keywords.get("disable") or not isinstance(decorator, eval_frame._NullDecorator):
            return decorator

        class Told(eval_frame._NullDecorator):
            def __call__(self, function: Any) -> Any:
                returned = decorator(function)
                made(backend, function)
                return returned

        return Told()

    return replace_attribute(eval_frame, "_optimize", functools.wraps(original)(_optimize))


def watch_stance(left: Callable[[str], None]) -> Undo:
    """Call ``left(stance)`` when the program has left a stance for another one."""
    from torch._dynamo import decorators, eval_frame

    original: Callable[[Any], Any] = vars(decorators)["_set_stance"]

    def _set_stance(stance: Any) -> Any:
        prior = original(stance)
        left(stance_name(prior))
        return prior

    # It may be called while a compiled function runs, to be refused there.
    eval_frame.skip_code(_set_stance.__code__)
    # With the attribute that forbids it in a graph.
    functools.update_wrapper(_set_stance, original)
    return replace_attribute(decorators, "_set_stance", _set_stance)


def stance_name(stance: Any) -> str:
    return FORCED_BACKEND if stance.backend is not None else str(stance.stance)


def present_stance() -> str:
    from torch._dynamo import eval_frame

    return stance_name(eval_frame._stance)


def watch_skips(skipped: Callable[[Any, CodeType, str], None]) -> Undo:
    """Call ``skipped(backend, code, reason)`` for each function that Dynamo leaves as it is.

    Before torch 2.13 Dynamo tells nobody, and nothing is called.
    """
    from torch._dynamo import convert_frame
    from torch._dynamo.eval_frame import innermost_backend

    original = getattr(convert_frame, "add_skip_reason", None)
    if original is None:
        return lambda: None

    def add_skip_reason(reason: str, frame: Any) -> None:
        original(reason, frame)
        wrapper = sys._getframe(1).f_locals.get("self")
        if isinstance(wrapper, convert_frame.CatchErrorsWrapper):
            skipped(innermost_backend(wrapper), frame.f_code, reason)

    return replace_attribute(convert_frame, "add_skip_reason", add_skip_reason)
