"""Child programs, shared caches, and a clean slate for tests that compile in this process."""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from instrumented_backend.observe import native

# Before the package is imported: nothing of the test run itself is to be printed.
os.environ["INSTRUMENTED_TABLES"] = "none"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


@pytest.fixture(scope="session", autouse=True)
def inductor_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache folder for the whole run, workers included: Inductor compiles each thing once."""
    base = tmp_path_factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        base = base.parent
    folder = base / "inductor_cache"
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)
    # The op meter's library is built once for the run, and not taken from an earlier one.
    os.environ["XDG_CACHE_HOME"] = str(base / "cache")
    native.load()
    return folder


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked ``gpu`` are skipped where there is none, however pytest was called."""
    if any(item.get_closest_marker("gpu") for item in items):
        import torch

        if not torch.cuda.is_available():
            for item in items:
                if item.get_closest_marker("gpu"):
                    item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@dataclass
class Finished:
    """How a child program ended."""

    returncode: int
    stdout: str
    stderr: str
    reports: list[dict[str, Any]]

    @property
    def report(self) -> dict[str, Any]:
        assert len(self.reports) == 1, (self.reports, self.stderr)
        return self.reports[0]


RunProgram = Callable[..., Finished]


@pytest.fixture
def run_program(tmp_path: Path) -> RunProgram:
    """Run a program's source in a child process with its own report folder.

    ``env`` adds variables (None takes one away), ``arguments`` follow the script's name, and
    ``command`` replaces ``python SCRIPT``: "{script}" in it is the script's path.
    """

    def run(
        source: str,
        *,
        env: dict[str, str | None] | None = None,
        arguments: tuple[str, ...] = (),
        command: tuple[str, ...] = (sys.executable, "{script}"),
        check: bool = True,
        timeout: float = 180,
        interact: Callable[[subprocess.Popen[str]], None] | None = None,
    ) -> Finished:
        number = len(list(tmp_path.glob("program*.py")))
        script = tmp_path / f"program{number}.py"
        script.write_text(textwrap.dedent(source))
        reports = tmp_path / f"reports{number}"
        variables = {
            **os.environ,
            "INSTRUMENTED_TABLES": "summary",
            "INSTRUMENTED_DIR": str(reports),
            **(env or {}),
        }
        process = subprocess.Popen(
            [part.format(script=script) for part in command] + list(arguments),
            env={name: value for name, value in variables.items() if value is not None},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )
        try:
            if interact is not None:
                interact(process)
            stdout, stderr = process.communicate(timeout=timeout)
        finally:
            process.kill()
            process.wait()
        if check:
            assert process.returncode == 0, stderr
        return Finished(
            process.returncode,
            stdout,
            stderr,
            [json.loads(path.read_text()) for path in sorted(reports.glob("report.*.json"))],
        )

    return run


@pytest.fixture
def fresh() -> Iterator[None]:
    """Dynamo and the session as at the start of a process, for tests that compile in this one."""
    import torch._dynamo

    import instrumented_backend

    torch._dynamo.reset()
    instrumented_backend.reset()
    yield
    torch._dynamo.reset()
