"""Why torch runs a graph without CUDA graphs: its message, to a reason and a code."""

from instrumented_backend.observe.messages.reasons import MAX_LENGTH, frames, users_frame
from instrumented_backend.records import Note, notes

_MUTATED_INPUTS = "mutated inputs"


def skip_reason(message: str) -> Note:
    """``"skipping cudagraphs due to mutated inputs (1 instances). Found from : ..."``: the reason
    and the user's line."""
    head, _, stack = message.partition("Found from")
    reason = head.strip().rstrip(".").partition(" due to ")[2] or head.strip()
    code = notes.MUTATED_INPUTS if _MUTATED_INPUTS in reason else notes.OTHER
    frame = users_frame(frames(stack.replace("\n   File", "\n  File")))
    if frame is not None:
        reason += f" at {frame.file}:{frame.line}"
    return Note(code, reason[:MAX_LENGTH])
