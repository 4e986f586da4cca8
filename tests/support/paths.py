"""Where things are, so that tests can be moved between folders."""

from pathlib import Path

SUPPORT = Path(__file__).parent
TESTS = SUPPORT.parent
DATA = TESTS / "data"
REPOSITORY = TESTS.parent
BENCHMARKS = REPOSITORY / "benchmarks"
