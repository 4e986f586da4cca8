"""``torch.compile(model, backend="instrumented")``: Inductor, and a report of what it did.

`report` gives what has been observed so far, `observed` what happens in a ``with`` block,
`metrics_of` a few figures of a report, `reset` starts afresh, `instrumented` is the backend itself;
the other names are those of
``torch._inductor.wrapper_benchmark``. Importing this package makes the name known to Dynamo and
imports neither Dynamo nor Inductor. Where ``INSTRUMENTED_ADOPT=1``, it also puts this backend in
Inductor's place.
"""

from typing import TYPE_CHECKING, Any

from instrumented_backend.adoption import adopt_if_asked
from instrumented_backend.torch_compat.hooks import register_by_name

if TYPE_CHECKING:
    from instrumented_backend.backend import instrumented, observed, report, reset
    from instrumented_backend.dropins.wrapper_benchmark import (
        ProfileEvent,
        benchmark_all_kernels,
        compiled_module_main,
        get_kernel_category,
        get_kernel_category_by_source_code,
        get_triton_kernel,
        parse_profile_event_list,
    )
    from instrumented_backend.views.metrics import metrics_of

__all__ = [
    "ProfileEvent",
    "__version__",
    "benchmark_all_kernels",
    "compiled_module_main",
    "get_kernel_category",
    "get_kernel_category_by_source_code",
    "get_triton_kernel",
    "instrumented",
    "metrics_of",
    "observed",
    "parse_profile_event_list",
    "report",
    "reset",
]
__version__ = "0.1.0"

_BACKEND = ("instrumented", "observed", "report", "reset")

register_by_name()
adopt_if_asked()


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    # The backend is imported on first use: it needs Dynamo, which takes a second to import.
    if name in _BACKEND:
        from instrumented_backend import backend

        return getattr(backend, name)
    if name == "metrics_of":
        from instrumented_backend.views.metrics import metrics_of

        return metrics_of
    if name in __all__:
        from instrumented_backend.dropins import wrapper_benchmark

        return getattr(wrapper_benchmark, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
