"""The environment of a program whose ``torch.compile`` goes through this backend."""

import os
from collections.abc import Mapping
from pathlib import Path

from instrumented_backend import adoption
from instrumented_backend.torch_compat import hooks

STARTUP = Path(__file__).parents[1] / "startup"


def adopting(environ: Mapping[str, str]) -> dict[str, str]:
    """``environ`` with what adoption needs; see `adoption`."""
    changed = {**environ, adoption.VARIABLE: "1"}
    if not hooks.torch_imports_us(changed):
        path = changed.get("PYTHONPATH")
        changed["PYTHONPATH"] = os.pathsep.join(filter(None, [str(STARTUP), path]))
    return changed
