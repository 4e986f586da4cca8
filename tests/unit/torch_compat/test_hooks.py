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


def test_an_attribute_can_be_replaced() -> None:
    """One of the class's own comes back as it was, one of its base's is the base's again."""

    class Base:
        def inherited(self) -> str:
            return "base"

    class Derived(Base):
        @staticmethod
        def own() -> str:
            return "own"

    before = dict(vars(Derived))
    undo = hooks.together(
        [
            hooks.replace_attribute(Derived, "own", staticmethod(lambda: "ours")),
            hooks.replace_attribute(Derived, "inherited", lambda self: "ours"),
        ]
    )
    assert Derived.own() == Derived().inherited() == "ours" and Base().inherited() == "base"
    undo()
    assert dict(vars(Derived)) == before


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
