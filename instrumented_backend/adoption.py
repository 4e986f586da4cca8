"""``INSTRUMENTED_ADOPT=1``: what a program gives to Inductor comes to this backend, with no edit.

Importing the package does it: torch's autoload imports it with torch
(``instrumented_backend_autoload.py``), and where that is off, Python at its start does
(``startup/sitecustomize.py``, under ``run``). The rest of ours is imported by the program's first
``torch.compile``, and where that fails, the program has plain Inductor.
"""

import contextlib
import functools
import logging
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

from instrumented_backend.torch_compat import hooks

VARIABLE = "INSTRUMENTED_ADOPT"
MARK = "torch."  # and the process's id: in the folder of `run`, for each that imports torch


def adopt_if_asked() -> None:
    # A value that is neither is refused with all other settings, by the first torch.compile.
    if os.environ.get(VARIABLE, "").strip() not in ("", "0"):
        adopt()
        hooks.after_torch(_mark)
        if "INSTRUMENTED_TRIAL" in os.environ:
            hooks.after_torch(_try)


def adopt() -> hooks.Undo:
    """Put this backend in Inductor's place. Undoing it leaves what was compiled as it is."""
    undos: list[hooks.Undo] = []
    undone = False

    def undo() -> None:
        nonlocal undone
        undone = True
        for one in reversed(undos):
            one()
        undos.clear()

    def watching(watch: Callable[[ModuleType], hooks.Undo]) -> Callable[[ModuleType], None]:
        def watch_unless_undone(module: ModuleType) -> None:
            if not undone:
                undos.append(watch(module))

        return watch_unless_undone

    hooks.after_dynamo(watching(_watch_lookup))
    hooks.after_inductor(watching(_watch_compile_fx))
    return undo


def _mark(_: ModuleType) -> None:
    folder = os.environ.get("INSTRUMENTED_RUN")
    if folder:
        # A new file: a link or a pipe of that name may have been put there by somebody else.
        with contextlib.suppress(OSError), open(f"{folder}/{MARK}{os.getpid()}", "xb"):
            pass


def _try(torch: ModuleType) -> None:
    """A run of the command `try`. What fails here ends it, and the command says so."""
    from instrumented_backend.trials import child

    child.begin(torch, os.environ["INSTRUMENTED_TRIAL"])


def _watch_lookup(_: ModuleType) -> hooks.Undo:
    """``torch.compile``, ``nn.Module.compile``, ``torch._dynamo.optimize``: all look it up."""
    from instrumented_backend.torch_compat import compiled, dynamo

    def adopted(backend: Any) -> Any:
        ours = _backend() if dynamo.is_inductor(backend) else None
        return backend if ours is None else ours.adopted(backend)

    def off(backend: Any, function: Any) -> None:
        ours = _backend() if dynamo.is_inductor(backend) else None
        if ours is not None:
            ours.off(function)

    undos = [dynamo.patch_backend_lookup(adopted)]
    if compiled.is_off():
        undos.append(compiled.watch_off(off))
    return hooks.together(undos)


def _watch_compile_fx(module: ModuleType) -> hooks.Undo:
    """Programs that call Inductor without Dynamo, or from a backend of their own."""
    from instrumented_backend.torch_compat import inductor

    def compile_fx(original: Any, *args: Any, **kwargs: Any) -> Any:
        ours = _backend()
        if ours is None:
            return original(*args, **kwargs)
        return ours.compile_directly(original, *args, **kwargs)

    return inductor.patch_compile_fx(module, compile_fx)


@functools.cache
def _backend() -> ModuleType | None:
    """None where it cannot be imported, which is said once."""
    try:
        from instrumented_backend import backend
    except Exception as error:  # whatever a broken installation raises: Inductor compiles alone
        if isinstance(error, SystemExit):  # SettingsError
            raise
        logging.getLogger("instrumented_backend").warning(
            "instrumented: not observed: %s: %s", type(error).__name__, error
        )
        return None
    return backend
