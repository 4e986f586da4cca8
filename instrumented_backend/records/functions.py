"""The names that Dynamo gives to functions."""

from instrumented_backend.records.places import line_number

_RESUMED, _AT = "torch_dynamo_resume_in_", "_at_"


def resumed(function: str) -> tuple[str, int | None]:
    """``torch_dynamo_resume_in_f_at_9`` is the rest of ``f`` from line 9 on; ``f`` is all of it."""
    if not function.startswith(_RESUMED):
        return function, None
    inside, _, digits = function.removeprefix(_RESUMED).rpartition(_AT)
    line = line_number(digits) if inside else None
    return (function, None) if line is None else (inside, line)


def original(function: str) -> str:
    """``"f"``, of the rest of its rest as well."""
    # By positions: a name may be resumed as often as its length allows.
    start, end = 0, len(function)
    while function.startswith(_RESUMED, start, end):
        at = function.rfind(_AT, start + len(_RESUMED) + 1, end)
        if at < 0 or line_number(function[at + len(_AT) : end]) is None:
            break
        start, end = start + len(_RESUMED), at
    return function[start:end]
