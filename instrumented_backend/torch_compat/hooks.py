"""How torch learns of this backend: by name, and as soon as it imports what we change."""

import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

# Private names, by the versions of torch that have them.
NAMES = {
    "2.11 to 2.15": ("torch._dynamo.backends.registry._BACKENDS",),
}

BACKEND_NAME = "instrumented"
ENTRY_POINT_GROUP = "torch_dynamo_backends"
_REGISTRY = "torch._dynamo.backends.registry"
Undo = Callable[[], None]
_ABSENT = object()


def replace_attribute(owner: Any, name: str, value: Any) -> Undo:
    """Let ``owner.name`` be ``value``, for a class or a module, until it is undone."""
    own = vars(owner).get(name, _ABSENT)  # a static method as such; not what a base class has
    setattr(owner, name, value)

    def undo() -> None:
        if own is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, own)

    return undo


def together(undos: list[Undo]) -> Undo:
    """Undo all that are in the list by then."""

    def undo() -> None:
        for one in undos:
            one()

    return undo


class _AfterImport(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Runs ``action(module)`` once, right after ``name`` has been imported."""

    def __init__(self, name: str, action: Callable[[ModuleType], None]) -> None:
        self.name = name
        self.action = action
        self.loader: importlib.abc.Loader | None = None

    def find_spec(
        self, name: str, path: Any, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            self.loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        assert self.loader is not None
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert self.loader is not None and module.__spec__ is not None
        # From here on the module looks as if we had never been there.
        module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        self.action(module)


def after_import(name: str, action: Callable[[ModuleType], None]) -> None:
    """Call ``action(module)`` now if the module is there, else as soon as it is imported."""
    module = sys.modules.get(name)
    if module is not None:
        action(module)
    else:
        sys.meta_path.insert(0, _AfterImport(name, action))


def after_dynamo(action: Callable[[ModuleType], None]) -> None:
    """Call ``action(torch._dynamo)`` now if Dynamo is there, else as soon as it is imported."""
    after_import("torch._dynamo", action)


def register_by_name() -> None:
    """Make ``backend="instrumented"`` known to Dynamo without importing Dynamo for it.

    Dynamo finds installed backends by their entry point; this adds the same entry point for a
    package that is merely importable. A registered *function* would make Dynamo's own look-up
    of the entry point fail with "duplicate name".
    """
    entry_point = importlib.metadata.EntryPoint(
        BACKEND_NAME, "instrumented_backend.backend:instrumented", ENTRY_POINT_GROUP
    )
    after_import(
        _REGISTRY, lambda registry: registry._BACKENDS.setdefault(BACKEND_NAME, entry_point)
    )
