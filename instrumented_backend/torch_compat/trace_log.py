"""Torch's structured trace log, of which we want a few events."""

import logging
import sys
from collections.abc import Callable
from typing import Any

from instrumented_backend.torch_compat.hooks import Undo

# Private names, by the versions of torch that have them.
NAMES = {
    "2.11 to 2.15": (
        "torch._logging.trace_structured(metadata_fn)",
        "torch._logging.trace_structured(name)",
        "torch._logging.trace_structured(payload_fn)",
    ),
}

TRACE_LOGGER = "torch.__trace"


class _SelectiveHandlers(list[logging.Handler]):
    """The trace logger's handlers, empty to torch's eyes for events that we don't want.

    ``trace_structured`` renders an event (whole graphs, all guards: 3 to 10 % of a warm compile)
    if ``trace_log.handlers`` is true. It is for every event once another handler is there
    (TORCH_TRACE); with ours alone, only for the events in ``wanted``. Which event is asked for
    is read from the caller's arguments; where they can't be found, the answer is yes.
    Marks of time (``chromium_event``) are passed to ``timed`` as they are, and never rendered for
    us: there are hundreds in a compilation.
    """

    def __init__(
        self,
        handlers: list[logging.Handler],
        wanted: frozenset[str],
        artifacts: frozenset[str],
        timed: Callable[[dict[str, Any]], None] | None,
    ) -> None:
        super().__init__(handlers)
        self.wanted = wanted
        self.artifacts = artifacts
        self.timed = timed

    def __bool__(self) -> bool:
        caller = sys._getframe(1)
        if caller.f_code.co_name != "trace_structured":
            return len(self) > 0
        arguments = caller.f_locals
        event = arguments.get("name")
        if event == "chromium_event" and self.timed is not None:
            self.timed(arguments["payload_fn"]())
            return len(self) > 1
        if len(self) != 1 or event is None or event in self.wanted:
            return len(self) > 0
        if event != "artifact":
            return False
        metadata = arguments["metadata_fn"]()
        return metadata.get("name") in self.artifacts


def listen(
    handler: logging.Handler,
    wanted: frozenset[str],
    artifacts: frozenset[str],
    timed: Callable[[dict[str, Any]], None] | None = None,
) -> Undo:
    """Attach ``handler`` for the named events, and the named events of kind "artifact".

    ``timed`` gets torch's marks of time as dicts, in the form of Chrome traces: ``name``, ``ph``
    ("B": start, "E": end, "i": an instant), ``args``. It must not raise.
    """
    logger = logging.getLogger(TRACE_LOGGER)
    logger.addHandler(handler)
    logger.handlers = _SelectiveHandlers(logger.handlers, wanted, artifacts, timed)

    def undo() -> None:
        logger.handlers = list(logger.handlers)
        logger.removeHandler(handler)

    return undo


def revive() -> bool:
    """Undo ``disable_existing_loggers`` for the trace log; False if logging is off altogether.

    ``logging.config.dictConfig`` disables every logger that it doesn't name. The trace log never
    propagates, so that this brings no line onto anybody's console.
    """
    logger = logging.getLogger(TRACE_LOGGER)
    logger.disabled = False
    return logger.isEnabledFor(logging.DEBUG)
