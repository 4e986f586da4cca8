"""Calls of functions in processes of their own: the backend reads its settings once a process."""

import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import click

BENCHMARKS = Path(__file__).parents[1]


def call(function: Callable[..., Any], *arguments: Any, **variables: str) -> Any:
    """What a module's function returns there, as JSON has it; ``variables`` are its environment's.

    Dataclasses come back as dicts. stdout is thrown away, stderr is this process's. Raises
    ClickException where the process fails.
    """
    return _call(function, arguments, variables, None)


def call_quietly(function: Callable[..., Any], *arguments: Any, **variables: str) -> Any:
    """As `call`; of stderr only the end, where the process fails."""
    return _call(function, arguments, variables, subprocess.PIPE)


def _call(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    variables: dict[str, str],
    stderr: int | None,
) -> Any:
    request = json.dumps([function.__module__, function.__qualname__, arguments])
    path = os.pathsep.join(part for part in (str(BENCHMARKS), os.environ.get("PYTHONPATH")) if part)
    environment = {**os.environ, "INSTRUMENTED_TABLES": "none", **variables, "PYTHONPATH": path}
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        done = subprocess.run(
            [sys.executable, "-m", "proof.child", request, str(answer)],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        )
        if done.returncode:
            said = (done.stderr or b"").decode(errors="replace").splitlines()
            raise click.ClickException(
                f"{function.__module__}.{function.__qualname__}: its process ended with code "
                + "\n".join([str(done.returncode), *said[-20:]])
            )
        return json.loads(answer.read_text())


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"cannot be returned from a child process: {value!r}")


def main() -> None:
    request, answer = sys.argv[1:]
    module, name, arguments = json.loads(request)
    result = getattr(importlib.import_module(module), name)(*arguments)
    Path(answer).write_text(json.dumps(result, default=_plain))


if __name__ == "__main__":
    main()
