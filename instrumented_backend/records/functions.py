"""The names that Dynamo gives to functions."""

import re

_RESUMED = re.compile(r"torch_dynamo_resume_in_(?P<function>.+)_at_(?P<line>\d+)$")


def resumed(function: str) -> tuple[str, int | None]:
    """``torch_dynamo_resume_in_f_at_9`` is the rest of ``f`` from line 9 on; ``f`` is all of it."""
    match = _RESUMED.match(function)
    return (match["function"], int(match["line"])) if match else (function, None)
