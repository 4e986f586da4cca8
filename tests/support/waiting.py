"""Waiting for something that happens on another thread or in another process.

Tests assert on nothing that a clock says. The limits here only keep a broken test from hanging.
"""

import time
from collections.abc import Callable

LIMIT_S = 600.0


def wait_until(condition: Callable[[], object]) -> None:
    """Return as soon as ``condition()`` is true; raises TimeoutError after ten minutes."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {LIMIT_S:g} s: {condition}")
        time.sleep(0.01)
