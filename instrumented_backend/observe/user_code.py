"""Which code is the user's own, which a library's, and which torch's or Python's."""

import os
import sysconfig

from instrumented_backend.torch_compat import machine

_paths = sysconfig.get_paths()
_LIBRARIES = tuple(os.path.join(path, "") for path in {_paths["stdlib"], _paths["platstdlib"]})
_PACKAGES = tuple(os.path.join(path, "") for path in {_paths["purelib"], _paths["platlib"]})
_OWN = tuple(os.path.join(path, "") for path in (machine.folder(), os.path.dirname(__file__)))


def is_internal(file: str) -> bool:
    """Code of torch, of the standard library or of this package: nobody's line to change.

    So is what torch generates, for backends other than ours too: FX graphs, Inductor's modules.
    """
    if file.startswith(("<frozen", "<eval_with_key>", *_OWN)):
        return True
    generated = os.environ.get("TORCHINDUCTOR_CACHE_DIR")  # set once Inductor has been used
    if generated and file.startswith(os.path.join(generated, "")):
        return True
    return file.startswith(_LIBRARIES) and not file.startswith(_PACKAGES)


def is_installed(file: str) -> bool:
    """Code of an installed package."""
    return file.startswith(_PACKAGES)
