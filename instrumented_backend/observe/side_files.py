"""What codegen alone knows about a graph, kept beside Inductor's caches for warm processes."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from instrumented_backend import torch_compat


def _path(kind: str, key: str) -> Path:
    return Path(torch_compat.cache_folder()) / "instrumented" / kind / f"{key}.json"


def save(kind: str, key: str, data: Any) -> None:
    """Keep ``data`` (as JSON, whole or not at all) under a graph's own key; raises OSError."""
    path = _path(kind, key)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
    try:
        with open(handle, "w", encoding="utf-8") as file:
            json.dump(data, file)
        os.replace(part, path)
    finally:
        Path(part).unlink(missing_ok=True)  # it is there only if something failed


def load(kind: str, key: str) -> Any:
    """What was kept, or None; raises OSError or ValueError where it can't be read."""
    try:
        return json.loads(_path(kind, key).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
