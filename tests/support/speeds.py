"""The two speeds of the suite, for tests with many parameters."""

from collections.abc import Iterable
from typing import Any

import pytest


def full_but(names: Iterable[str], *quick: str) -> list[Any]:
    """Parameters of a test: those named are in the quick part, the others are marked ``full``."""
    names = list(names)
    unknown = set(quick) - set(names)
    if unknown:
        raise ValueError(f"no such parameters: {sorted(unknown)}")
    return [
        pytest.param(name, id=name, marks=() if name in quick else pytest.mark.full)
        for name in names
    ]
