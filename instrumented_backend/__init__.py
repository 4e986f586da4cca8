"""``torch.compile(model, backend="instrumented")``: Inductor, and a report of what it did.

`report` gives what has been observed so far, `reset` starts afresh, `instrumented` is the backend
itself. Importing this package makes the name known to Dynamo and imports neither Dynamo nor
Inductor.
"""

from typing import TYPE_CHECKING, Any

from instrumented_backend.torch_compat import register_by_name

if TYPE_CHECKING:
    from instrumented_backend.backend import instrumented, report, reset

__all__ = ["__version__", "instrumented", "report", "reset"]
__version__ = "0.1.0"

register_by_name()


def __getattr__(name: str) -> Any:
    # The backend is imported on first use: it needs Dynamo, which takes a second to import.
    if name in ("instrumented", "report", "reset"):
        from instrumented_backend import backend

        return getattr(backend, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
