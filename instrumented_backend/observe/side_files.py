"""What codegen alone knows about a graph, kept beside Inductor's caches for warm processes."""

import json
from pathlib import Path
from typing import Any

from instrumented_backend import torch_compat
from instrumented_backend.whole_file import write_whole


def _path(kind: str, key: str) -> Path:
    return Path(torch_compat.cache_folder()) / "instrumented" / kind / f"{key}.json"


def save(kind: str, key: str, data: Any) -> None:
    """Keep ``data`` (as JSON, whole or not at all) under a graph's own key; raises OSError."""
    write_whole(_path(kind, key), json.dumps(data))


def load(kind: str, key: str) -> Any:
    """What was kept, or None; raises OSError or ValueError where it can't be read."""
    try:
        return json.loads(_path(kind, key).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
