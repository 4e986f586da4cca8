"""What makes the backend known, and what runs after an import of torch's."""

import importlib
import importlib.util
import sys
import threading
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


def test_after_import_of_what_is_looked_for_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """Programs ask whether a module is there before they import it; and an import may fail."""
    (tmp_path / "looked_for.py").write_text("import sys\nif not sys.first: raise ImportError")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "first", False, raising=False)
    seen: list[str] = []
    hooks.after_import("looked_for", lambda module: seen.append("a"))
    hooks.after_import("looked_for", lambda module: seen.append("b"))
    spec = importlib.util.find_spec("looked_for")
    assert spec is not None and spec.loader is not None
    assert spec.loader.get_source("looked_for")  # type: ignore[attr-defined]
    with pytest.raises(ImportError):
        importlib.import_module("looked_for")
    assert seen == []
    monkeypatch.setattr(sys, "first", True)
    importlib.import_module("looked_for")
    assert seen == ["a", "b"]
    assert hooks._after_import not in sys.meta_path or hooks._after_import.actions


def test_after_an_import_that_another_thread_is_at(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    (tmp_path / "slow_import.py").write_text(
        "import sys\nsys.begun.set()\nsys.go_on.wait()\nvalue = 1"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    begun, go_on = threading.Event(), threading.Event()
    monkeypatch.setattr(sys, "begun", begun, raising=False)
    monkeypatch.setattr(sys, "go_on", go_on, raising=False)
    importer = threading.Thread(target=importlib.import_module, args=("slow_import",))
    importer.start()
    begun.wait()
    seen: list[int] = []
    waiter = threading.Thread(
        target=hooks.after_import, args=("slow_import", lambda module: seen.append(module.value))
    )
    waiter.start()
    go_on.set()
    importer.join()
    waiter.join()
    assert seen == [1]
