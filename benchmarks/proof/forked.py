"""Calls of functions in forks of this process, which has imported torch and uses no GPU."""

import atexit
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

SAID = 20  # lines of stderr, where the fork fails

# Asking whether there is a GPU, as importing Inductor does, would keep forks from using it.
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")


def call(function: Callable[..., Any], *arguments: Any, **variables: str) -> Any:
    """What the function returns there, as JSON has it; ``variables`` are its environment's.

    stdout is thrown away, and so is stderr. Raises ClickException with its end where the function
    fails.
    """
    return start(function, *arguments, **variables)()


def start(function: Callable[..., Any], *arguments: Any, **variables: str) -> Callable[[], Any]:
    """Begins the call; to be called once, for what `call` returns."""
    import torch._inductor.compile_fx  # noqa: F401

    folder = tempfile.TemporaryDirectory()
    answer, said = Path(folder.name) / "answer.json", Path(folder.name) / "stderr"
    child = os.fork()
    if child == 0:
        _serve(function, arguments, variables, answer, said)

    def finish() -> Any:
        with folder:
            _, status = os.waitpid(child, 0)
            if status:
                lines = said.read_text(errors="replace").splitlines()
                raise click.ClickException(
                    f"{function.__module__}.{function.__qualname__}: its process ended with code "
                    + "\n".join([str(os.waitstatus_to_exitcode(status)), *lines[-SAID:]])
                )
            return json.loads(answer.read_text())

    return finish


def _serve(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    variables: dict[str, str],
    answer: Path,
    said: Path,
) -> None:
    """Ends the process, with the exit functions that were registered here."""
    code = 1
    try:
        atexit._clear()
        os.environ.update({"INSTRUMENTED_TABLES": "none", **variables})
        for path, number in ((os.devnull, 1), (said, 2)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
        answer.write_text(json.dumps(function(*arguments)))
        atexit._run_exitfuncs()
        code = 0
    except BaseException:  # said there; the parent raises
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
