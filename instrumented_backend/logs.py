"""The package's logger. The program's own logging configuration takes precedence."""

import logging
import sys

from instrumented_backend.records.escapes import shown_lines

LOGGER = "instrumented_backend"


class _StderrUnlessConfigured(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to stderr, unless the program has given the root logger handlers of its own."""

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.getLogger().handlers:
            self.stream = sys.stderr  # as it is now: programs and test runners replace it
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Do nothing where stderr is closed: logging's own method would raise, in the program."""


class _Escaping(logging.Formatter):
    """Names and messages of others may hold what a terminal would obey."""

    def format(self, record: logging.LogRecord) -> str:
        return shown_lines(super().format(record))


def configure_logging(level: str) -> None:
    """Let the lines of the ``instrumented_backend`` logger reach stderr, from ``level`` up.

    A level that the program has set itself stays.
    """
    logger = logging.getLogger(LOGGER)
    if logger.level == logging.NOTSET:
        logger.setLevel(level.upper())
    handler = _StderrUnlessConfigured()
    handler.setFormatter(_Escaping("instrumented: %(levelname)s: %(message)s"))
    logger.addHandler(handler)
