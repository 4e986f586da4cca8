"""What only the code generator knew of a graph, kept beside Inductor's caches for warm processes.

One file for each graph and kind of fact, under the graph's own hash: the generated code and its
cache key stay as they are.
"""

import functools
import json
from pathlib import Path
from typing import Any

from instrumented_backend.records import bounded
from instrumented_backend.records.whole_file import sweep, write_whole

FOLDER = "instrumented"  # in Inductor's cache
VERSION = 1
MAX_CHARACTERS = 500_000
MAX_BYTES = 1 << 20  # what is larger, we did not write


def side_file(module_path: str, kind: str, key: str | None = None) -> Path:
    """For the module ``CACHE/ab/cab….py``: ``CACHE/instrumented/<kind>/cab….json``.

    ``key`` is put in front of the module's name where one module stands for several graphs.
    """
    module = Path(module_path)
    name = module.stem if key is None else f"{key}.{module.stem}"
    return module.parent.parent / FOLDER / kind / f"{name}.json"


def save(path: Path, data: Any) -> bool:
    """Keep ``data`` as JSON, whole or not at all, whoever else writes it; False: it is too large.

    Raises OSError.
    """
    text = json.dumps({"version": VERSION, "data": data})
    if len(text) > MAX_CHARACTERS:
        return False
    _sweep_once(path.parent)
    write_whole(path, text)
    return True


@functools.lru_cache(maxsize=64)
def _sweep_once(folder: Path) -> None:
    """Of what killed processes left there. A process looks once: there may be many files."""
    sweep(folder)


def load(path: Path) -> Any:
    """What was kept; None where nobody kept anything, or the file is of no use."""
    try:
        kept = bounded.parse(bounded.read_text(path, MAX_BYTES))
    except (OSError, ValueError):
        return None
    if not isinstance(kept, dict) or kept.get("version") != VERSION:
        return None
    return kept.get("data")
