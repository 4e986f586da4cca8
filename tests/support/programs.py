"""Child programs: how they are started, and what they leave behind."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paths import SUPPORT


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
TOOL = (sys.executable, "-m", "instrumented_backend")


def prepare(folder: Path, source: str, env: dict[str, str | None]) -> tuple[Path, Path, dict]:
    """Write a program: its path, that of its own report folder, its environment."""
    number = len(list(folder.glob("program*.py")))
    script = folder / f"program{number}.py"
    script.write_text(textwrap.dedent(source))
    reports = folder / f"reports{number}"
    variables = {
        **os.environ,
        "INSTRUMENTED_TABLES": "summary",
        "INSTRUMENTED_DIR": str(reports),
        **env,
    }
    return script, reports, {name: value for name, value in variables.items() if value is not None}


def read_reports(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("report.*.json"))]


# A process that has used CUDA cannot be forked.
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}
# With several, the Trainer of Hugging Face runs copies of the model that was not compiled.
ONE_GPU = {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]}


class Forker:
    """`forker.py`, at work for all tests of this process."""

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, str(SUPPORT / "forker.py")],
            env={**os.environ, **NO_GPU},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, request: dict[str, Any], timeout: float) -> int:
        """The exit code; a program that takes longer is killed, and its code is -SIGKILL."""
        assert self._server.stdin is not None and self._server.stdout is not None
        print(json.dumps(request), file=self._server.stdin, flush=True)
        killer = threading.Timer(
            timeout, os.kill, (int(self._server.stdout.readline()), signal.SIGKILL)
        )
        killer.start()
        try:
            return int(self._server.stdout.readline())
        finally:
            killer.cancel()

    def close(self) -> None:
        self._server.communicate()


def ops_of(done: Finished) -> dict[str, Any]:
    notes = [note for note in done.report["notes"] if note.startswith("lost")]
    assert not notes
    ops: dict[str, Any] = done.report["ops"]
    return ops
