"""What the pytest plugin costs a suite: with ``--compile-report`` next to the same suite without.

    python benchmarks/suite_time.py             # 5 pairs, some minutes

The suite compiles ten functions and calls each a few hundred times; its caches are warm. A pair is
one run of each, in turn. The exit code is 1 where the median ratio is above its limit.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click

LIMIT = 1.05

SUITE = """
import pytest
import torch


@pytest.mark.parametrize("n", range(10))
def test_a_function(n):
    def f(x):
        return (x * n).sin().sum() + n
    step = torch.compile(f, dynamic=False)
    x = torch.ones(256, 256)
    for _ in range(300):
        y = step(x)
    assert torch.isclose(y, f(x), rtol=1e-3)
    torch._dynamo.reset()
"""


def seconds(folder: Path, *arguments: str) -> float:
    """Of one run of the suite, from the start of Python to its end."""
    command = [sys.executable, "-m", "pytest", "-q", "-pno:cacheprovider", "-c", os.devnull]
    environ = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")}
    # What pip installs has its byte code, as torch has here; a checkout gets it in the first run.
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    start = time.perf_counter()
    done = subprocess.run(
        # The option last: pytest would take the file for the folder of reports.
        [*command, "--rootdir", str(folder), "test_suite.py", *arguments],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
    )
    took = time.perf_counter() - start
    if done.returncode:
        raise click.ClickException(f"the suite fails:\n{done.stdout}{done.stderr}")
    return took


@click.command(help=__doc__)
@click.option("--pairs", default=5, show_default=True, type=click.IntRange(2))
def main(pairs: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "test_suite.py").write_text(SUITE)
        seconds(folder)  # fills the caches
        seconds(folder, "--compile-report")  # builds the native parts
        ratios = []
        for number in range(pairs):
            both = [(), ("--compile-report",)]
            order = both if number % 2 else both[::-1]  # neither is always the first
            took = {arguments: seconds(folder, *arguments) for arguments in order}
            ratios.append(took[("--compile-report",)] / took[()])
    low, median, high = statistics.quantiles(ratios, n=4)
    row = {"what": "suite", "median": median, "low_quartile": low, "high_quartile": high}
    print(json.dumps({**row, "pairs": pairs, "limit": LIMIT}))
    sys.exit(median > LIMIT)


if __name__ == "__main__":
    main()
