"""Torch's profilers: whether one runs, ours for device time, and spans in any of them."""

import functools
from collections.abc import Callable
from typing import Any

from torch.autograd import profiler

from instrumented_backend.torch_compat.hooks import Undo, replace_attribute

# Private names, by the versions of torch that have them.
NAMES = {
    "2.11 to 2.15": (
        "torch._C._profiler._RecordFunctionFast",
        "torch.autograd.profiler._disable_profiler",
        "torch.autograd.profiler._enable_profiler",
        "torch.autograd.profiler._is_profiler_enabled",
        "torch.autograd.profiler._prepare_profiler",
        "torch.autograd.profiler._set_is_profiler_enabled",
        "torch.autograd.profiler.profile",
    ),
}


def is_running() -> bool:
    """Does any profiler run, whoever started it?"""
    return profiler._is_profiler_enabled


def note_none_runs() -> None:
    """Tell torch that no profiler runs: it thinks that one runs that failed while it started."""
    profiler._set_is_profiler_enabled(False)


def watch_running(changed: Callable[[bool], None]) -> Undo:
    """Call ``changed`` with whether any profiler runs: now, and whenever torch notes it."""
    original = profiler._set_is_profiler_enabled

    @functools.wraps(original)
    def note(enable: bool) -> None:
        original(enable)
        changed(enable)

    undo = replace_attribute(profiler, "_set_is_profiler_enabled", note)
    changed(is_running())
    return undo


def watch_starts(starting: Callable[[], None], stopped: Callable[[], None]) -> None:
    """Have the one called before a profiler of anybody's is prepared or starts, the other when it
    has stopped."""

    def before(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            enabled = is_running()
            starting()
            if enabled and original.__name__ == "_enable_profiler":
                # emit_nvtx sets it first, and a profiler that ended for it just now took it back.
                profiler._set_is_profiler_enabled(True)
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
        setattr(profiler, name, wrap(getattr(profiler, name)))


def device_profile() -> Any:
    """A profiler of kernels, of the calls that launch them, and of this backend's regions.

    A context manager with ``export_chrome_trace(path)``. It is what ``torch.profiler.profile`` is
    made of: that one warns, on the program's stderr, that it keeps one window's events only.
    """
    return profiler.profile(use_device="cuda", use_kineto=True)


def record_function_fast() -> Any:
    """The context manager that marks a span in a profile at a tenth of record_function's cost."""
    from torch._C._profiler import _RecordFunctionFast

    return _RecordFunctionFast
