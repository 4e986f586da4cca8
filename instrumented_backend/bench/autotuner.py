"""The Triton kernel of a generated module that has been loaded."""

from types import ModuleType
from typing import Any

from instrumented_backend.torch_compat import inductor


def get_triton_kernel(mod: ModuleType) -> Any:
    """The Triton kernel (``CachingAutotuner``) of a module.

    Of several, it is the one that the module's own ``call`` launches. Raises ValueError where
    there is none, or still more than one.
    """
    kernels = _triton_kernels(mod)
    if len(kernels) > 1:
        function = getattr(mod, "call", None)
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        called = code.co_names if code is not None else ()
        kernels = {name: kernel for name, kernel in kernels.items() if name in called} or kernels
    if len(kernels) != 1:
        names = ", ".join(kernels) or "none"
        raise ValueError(f"{mod.__name__}: has to have one Triton kernel, has {names}")
    return next(iter(kernels.values()))


def _triton_kernels(module: ModuleType) -> dict[str, Any]:
    """By name, each once: a module may have two names for one kernel."""
    seen: dict[int, tuple[str, Any]] = {}
    for name, value in vars(module).items():
        if inductor.is_triton_kernel(value):
            seen.setdefault(id(value), (name, value))
    return dict(seen.values())
