"""The trace log renders for us what we asked for."""

import logging
from typing import Any

from instrumented_backend.torch_compat import trace_log


def test_the_trace_log_is_selective() -> None:
    from torch._dynamo.utils import dynamo_timed
    from torch._logging import trace_structured

    class Keep(logging.Handler):
        def __init__(self) -> None:
            super().__init__()
            self.kept: list[str] = []

        def emit(self, record: logging.LogRecord) -> None:
            self.kept += [key for key in record.metadata if key in ("wanted", "artifact", "other")]

    logger = logging.getLogger(trace_log.TRACE_LOGGER)
    before = logger.handlers
    logger.handlers = []
    handler = Keep()
    rendered: list[str] = []
    marks: list[dict[str, Any]] = []
    undo = trace_log.listen(handler, frozenset({"wanted"}), frozenset({"this"}), marks.append)
    try:
        for event, name in (
            ("wanted", ""),
            ("other", ""),
            ("artifact", "this"),
            ("artifact", "that"),
        ):
            trace_structured(
                event,
                metadata_fn=lambda name=name: {"name": name},
                payload_fn=lambda event=event, name=name: rendered.append(event + name) or "",
                expect_trace_id=False,
            )
        assert handler.kept == ["wanted", "artifact"]
        assert rendered == ["wanted", "artifactthis"]
        # Marks of time are read as they are.
        with dynamo_timed("a step"):
            pass
        assert [(mark["ph"], mark["name"]) for mark in marks] == [("B", "a step"), ("E", "a step")]
        assert handler.kept == ["wanted", "artifact"]
        # Somebody else who listens gets everything.
        logger.addHandler(logging.NullHandler())
        trace_structured("other", payload_fn=lambda: "", expect_trace_id=False)
        assert handler.kept == ["wanted", "artifact", "other"]
    finally:
        undo()
        logger.handlers = before
