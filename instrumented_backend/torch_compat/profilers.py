"""Torch's profilers: whether one runs, ours for device time, and spans in any of them."""

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from instrumented_backend.torch_compat.hooks import Undo, replace_attribute


def profiler_state() -> ModuleType:
    """The module whose ``_is_profiler_enabled`` says whether any profiler runs."""
    import torch.autograd.profiler

    return torch.autograd.profiler


def watch_profiler_state(changed: Callable[[bool], None]) -> Undo:
    """Call ``changed`` with whether any profiler runs: now, and whenever torch notes it (2.11 to
    2.15)."""
    module: Any = profiler_state()
    original = module._set_is_profiler_enabled

    @functools.wraps(original)
    def note(enable: bool) -> None:
        original(enable)
        changed(enable)

    undo = replace_attribute(module, "_set_is_profiler_enabled", note)
    changed(module._is_profiler_enabled)
    return undo


def watch_profilers(starting: Callable[[], None], stopped: Callable[[], None]) -> None:
    """Have the one called before a profiler of anybody's is prepared or starts, the other when it
    has stopped; torch 2.11 to 2.15."""
    module = profiler_state()

    def before(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            enabled = module._is_profiler_enabled
            starting()
            if enabled and original.__name__ == "_enable_profiler":
                # emit_nvtx sets it first, and a profiler that ended for it just now took it back.
                module._set_is_profiler_enabled(True)
            return original(*args, **kwargs)

        return call

    def after(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return original(*args, **kwargs)
            finally:
                stopped()

        return call

    for name, wrap in (
        ("_prepare_profiler", before),
        ("_enable_profiler", before),
        ("_disable_profiler", after),
    ):
        setattr(module, name, wrap(getattr(module, name)))


def device_profile() -> Any:
    """A profiler of kernels, of the calls that launch them, and of this backend's regions.

    A context manager with ``export_chrome_trace(path)``. It is what ``torch.profiler.profile`` is
    made of: that one warns, on the program's stderr, that it keeps one window's events only.
    """
    from torch.autograd.profiler import profile

    return profile(use_device="cuda", use_kineto=True)


def record_function_fast() -> Any:
    """The context manager that marks a span in a profile at a tenth of record_function's cost."""
    from torch._C._profiler import _RecordFunctionFast

    return _RecordFunctionFast
