"""The generated code in ``data/kernels.tar.xz``."""

import functools
import tarfile
from pathlib import Path

ARCHIVE = Path(__file__).parent / "data" / "kernels.tar.xz"


@functools.cache
def modules() -> dict[str, str]:
    """``{"plain/adam.graph1.py": text, ...}``."""
    found = {}
    with tarfile.open(ARCHIVE) as archive:
        for member in archive:
            file = archive.extractfile(member)
            assert file is not None
            found[member.name] = file.read().decode()
    return found


def named(folder: str, kind: str = "") -> dict[str, str]:
    return {
        name: text
        for name, text in modules().items()
        if name.startswith(f"{folder}/") and f".{kind}" in name
    }
