"""Dynamo's messages, many lines long, cut down to one sentence and one place."""

import re
from dataclasses import dataclass
from itertools import pairwise

_EXPLANATION = "  Explanation: "
_SECOND_BREAK = "*** While handling this graph break, another graph break occurred: ***"
_FRAME = re.compile(
    r'^  File "(?P<file>.*)", line (?P<line>\d+), in (?P<function>.*)$', re.MULTILINE
)
_PLACE = re.compile(r"^Graph break in user code at (?P<file>.*):(?P<line>\d+)$", re.MULTILINE)
MAX_LENGTH = 300


@dataclass(frozen=True)
class BreakReason:
    reason: str
    file: str | None
    line: int | None
    function: str | None


def sentence(message: str) -> str:
    """What and why, out of one of Dynamo's messages.

    A message is a headline, then ``Explanation:``, ``Hint:`` and context lines, and sometimes
    prose before it or a second message after it. ``"Failed to trace builtin operator: Dynamo does
    not know how to trace builtin operator `print` ..."``
    """
    lines = message.strip().splitlines() or ["unknown"]
    for above, line in pairwise(lines):
        if line.startswith(_EXPLANATION):
            return f"{above.strip()}: {line.removeprefix(_EXPLANATION).strip()}"[:MAX_LENGTH]
    return lines[0].strip()[:MAX_LENGTH]


def last_sentence(message: str) -> str:
    """The same for the last of several messages: why a whole function was given up."""
    return sentence(message.rpartition(_SECOND_BREAK)[2])


def break_reason(payload: str) -> BreakReason:
    """Read the trace log's ``dynamo_graph_break_reason``."""
    head, _, stack = payload.partition("\nUser code traceback:")
    reason = sentence(head.partition("Graph Break Reason: ")[2] or head)
    place = _PLACE.search(head)
    if place is None:
        return BreakReason(reason, None, None, None)
    file, line = place["file"], int(place["line"])
    functions = [
        frame["function"]
        for frame in _FRAME.finditer(stack)
        if frame["file"] == file and int(frame["line"]) == line
    ]
    return BreakReason(reason, file, line, functions[-1] if functions else None)
