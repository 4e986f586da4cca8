"""Which code is the user's own, which a library's, and which torch's or Python's."""

import os
import sysconfig
from pathlib import Path

from instrumented_backend.torch_compat import machine

_paths = sysconfig.get_paths()
_LIBRARIES = tuple(os.path.join(path, "") for path in {_paths["stdlib"], _paths["platstdlib"]})
_PACKAGES = tuple(os.path.join(path, "") for path in {_paths["purelib"], _paths["platlib"]})
_FOLDERS_OF_PACKAGES = tuple(f"{os.sep}{name}-packages{os.sep}" for name in ("site", "dist"))
# The package's root, however deep in it this module is.
_PACKAGE = str(Path(__file__).parents[__name__.count(".") - 1])
_OWN = tuple(os.path.join(path, "") for path in (machine.folder(), _PACKAGE))
# Dynamo's frame around a function of torch's that was given to torch.compile: it stands for nobody.
_WRAPPER = os.path.join(machine.folder(), "_dynamo", "external_utils.py")
_POLYFILLS = os.path.join(machine.folder(), "_dynamo", "")
_DEMO = os.path.join(_PACKAGE, "demo.py")  # stands for a program of the user's


def is_internal(file: str) -> bool:
    """Code of torch, of the standard library or of this package: nobody's line to change.

    So is what torch generates, for backends other than ours too: FX graphs, Inductor's modules.
    """
    if file == _DEMO:
        return False
    if file.startswith(("<frozen", "<eval_with_key>", *_OWN)):
        return True
    generated = os.environ.get("TORCHINDUCTOR_CACHE_DIR")  # set once Inductor has been used
    if generated and file.startswith(os.path.join(generated, "")):
        return True
    return file.startswith(_LIBRARIES) and not is_installed(file)


def is_installed(file: str) -> bool:
    """Code of an installed package, of this Python's or of any folder of packages on its path.

    A virtual environment may have packages of the system's Python or of the user's.
    """
    return file.startswith(_PACKAGES) or any(folder in file for folder in _FOLDERS_OF_PACKAGES)


def is_library(file: str) -> bool:
    """Code of the standard library, and Dynamo's, which stands for it."""
    return (file.startswith(_POLYFILLS) and file != _WRAPPER) or (
        file.startswith(_LIBRARIES) and not is_installed(file)
    )
