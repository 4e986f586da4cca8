"""What makes the backend known, and what runs after an import of torch's."""

import sys
import types
from typing import Any

import pytest

from instrumented_backend.torch_compat import hooks


def test_the_backend_registry() -> None:
    from torch._dynamo.backends import registry

    import instrumented_backend  # noqa: F401

    assert hooks.BACKEND_NAME in registry._BACKENDS


def test_after_import(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    (tmp_path / "imported_later.py").write_text("value = 1")
    monkeypatch.syspath_prepend(str(tmp_path))
    seen: list[types.ModuleType] = []
    hooks.after_import("imported_later", seen.append)
    assert seen == []
    finders = len(sys.meta_path)
    import imported_later  # type: ignore[import-not-found]

    assert seen == [imported_later]
    assert len(sys.meta_path) == finders - 1
    assert type(imported_later.__loader__).__module__ != hooks.__name__
    assert imported_later.__spec__.loader is imported_later.__loader__
    hooks.after_import("imported_later", seen.append)
    assert seen == [imported_later] * 2
