"""What others wrote, at random: no traceback, no hang, no gigabyte, nothing executed.

CONTRIBUTING.md has the command for ten thousand cases of each kind.
"""

import os
import subprocess
import sys

import pytest
from fuzzing import KINDS
from paths import REPOSITORY, SUPPORT

QUICK, FULL = 25, 400


def fuzz(kind: str, count: int) -> None:
    done = subprocess.run(
        [sys.executable, str(SUPPORT / "fuzzing.py"), kind, str(count)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{kind}: {count} cases")


@pytest.mark.parametrize("kind", KINDS)
def test_some(kind: str) -> None:
    fuzz(kind, QUICK)


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_many(kind: str) -> None:
    fuzz(kind, FULL)
