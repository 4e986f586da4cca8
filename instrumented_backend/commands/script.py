"""Runs a program as ``python SCRIPT`` would, with Inductor replaced by this backend."""

import os
import runpy
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from instrumented_backend.torch_compat.hooks import after_dynamo


@dataclass(frozen=True)
class Script:
    """A file, or a module by name, with its arguments."""

    module: str | None
    path: Path | None
    arguments: tuple[str, ...]


def run_as_main(script: Script) -> None:
    """Run it in a fresh ``__main__``; its exceptions and ``SystemExit`` come out of here."""
    after_dynamo(_adopt_inductor)
    sys.excepthook = _hide_our_frames(sys.excepthook)
    main = ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    if script.module is not None:
        sys.argv = [script.module, *script.arguments]
        _put_first_on_path(os.getcwd())
        runpy._run_module_as_main(script.module, alter_argv=True)  # type: ignore[attr-defined]
        return
    assert script.path is not None
    sys.argv = [str(script.path), *script.arguments]
    if script.path.is_dir() or zipfile.is_zipfile(script.path):
        _put_first_on_path(str(script.path))
        runpy._run_module_as_main("__main__", alter_argv=False)  # type: ignore[attr-defined]
        return
    _put_first_on_path(str(script.path.resolve().parent))
    file = os.path.abspath(script.path)
    main.__dict__.update(__file__=file, __cached__=None, __annotations__={})
    code = compile(script.path.read_bytes(), file, "exec", dont_inherit=True)
    exec(code, main.__dict__)


def _put_first_on_path(folder: str) -> None:
    """In the place of our own console script's folder (python -m: of the working folder)."""
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = folder


def _adopt_inductor(dynamo: ModuleType) -> None:
    from instrumented_backend import backend

    backend.adopt_inductor()


def _hide_our_frames(previous: Any) -> Any:
    """A traceback hook that starts at the program's own first frame."""

    def excepthook(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        frames = []
        while traceback is not None:
            frames.append(traceback)
            traceback = traceback.tb_next
        ours = [
            i for i, frame in enumerate(frames) if frame.tb_frame.f_code is run_as_main.__code__
        ]
        frames = frames[ours[-1] + 1 :] if ours else frames
        while len(frames) > 1 and "runpy" in frames[0].tb_frame.f_code.co_filename:
            frames.pop(0)
        shown = frames[0] if frames else None
        previous(kind, error.with_traceback(shown), shown)

    return excepthook
