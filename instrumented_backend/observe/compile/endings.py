"""How a compilation ended, by what Dynamo's metrics say of it."""

from dataclasses import dataclass
from typing import Any

from instrumented_backend.observe.compile.compiled import Function
from instrumented_backend.observe.messages.user_code import is_internal
from instrumented_backend.torch_compat import dynamo

_LIMIT = "Dynamo recompile limit exceeded"
_LIMIT_IN_FULLGRAPH = "FailOnRecompileLimitHit"


@dataclass(frozen=True)
class Failure:
    """Why no graph came of a compilation, as far as Dynamo says.

    ``at`` is the program's line; it is ``refused`` because of the recompile limit; where it
    ``raises``, the program gets an exception.
    """

    message: str | None = None
    at: tuple[str | None, int | None] = (None, None)
    refused: bool = False
    raises: bool = False


def compiled_function(metrics: dict[str, Any], under_way: dynamo.CompilationUnderWay) -> Function:
    """What was compiled."""
    named: Function = (
        metrics.get("co_name"),
        metrics.get("co_filename"),
        metrics.get("co_firstlineno"),
    )
    code = under_way.code
    if named[0] is None and code is not None:
        return code.co_name, code.co_filename, code.co_firstlineno
    return named


def outcome_of(metrics: dict[str, Any], under_way: dynamo.CompilationUnderWay) -> str:
    if metrics.get("has_guarded_code"):
        return "compiled"
    is_skip = metrics.get("fail_type") in (None, "Unsupported", "SkipFrame")
    return "skipped" if is_skip and not under_way.raises else "failed"


def failure_of(metrics: dict[str, Any], outcome: str) -> Failure:
    message = metrics.get("fail_reason")
    if raises_at_limit(metrics):
        message = f"{_LIMIT} with fullgraph=True"
    file, line = metrics.get("fail_user_frame_filename"), metrics.get("fail_user_frame_lineno")
    at = (None, None) if file is not None and is_internal(file) else (file, line)
    raises = outcome == "failed" and not dynamo.suppresses_errors()
    return Failure(message, at, is_refusal(metrics), raises)


def is_refusal(metrics: dict[str, Any]) -> bool:
    """Was it not compiled because it had been compiled too often?"""
    limit = str(metrics.get("fail_reason")).startswith(_LIMIT)
    return limit or raises_at_limit(metrics)


def raises_at_limit(metrics: dict[str, Any]) -> bool:
    """The program gets an exception in place of another recompilation."""
    return metrics.get("fail_type") == _LIMIT_IN_FULLGRAPH
