"""How torch learns of this backend: by name, and as soon as it imports what we change."""

import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

# Private names, by the versions of torch that have them.
NAMES = {
    "2.11 to 2.15": (
        "torch._dynamo.backends.registry._BACKENDS",
        "torch._inductor.compile_fx",
    ),
}

BACKEND_NAME = "instrumented"
ENTRY_POINT_GROUP = "torch_dynamo_backends"
AUTOLOAD_GROUP = "torch.backends"
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


Action = Callable[[ModuleType], None]


class _AfterImport(importlib.abc.MetaPathFinder):
    """Finds the modules that somebody waits for, as the other finders do, with a loader of ours."""

    def __init__(self) -> None:
        self.actions: dict[str, list[Action]] = {}

    def wait(self, name: str, action: Action) -> None:
        self.actions.setdefault(name, []).append(action)
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in self.actions:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader)
                return spec
        return None

    def imported(self, module: ModuleType) -> None:
        actions = self.actions.pop(module.__name__, [])
        if not self.actions and self in sys.meta_path:
            sys.meta_path.remove(self)
        for action in actions:
            action(module)


_after_import = _AfterImport()


class _Loader(importlib.abc.Loader):
    """The module's own loader, and then what waits for the module.

    Only an import comes so far: a program may look for a module and not import it.
    """

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        # From here on the module looks as if we had never been there.
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        _after_import.imported(module)


def after_import(name: str, action: Action) -> None:
    """Call ``action(module)`` now if the module is there, else as soon as it is imported."""
    module = sys.modules.get(name)
    if module is None:
        _after_import.wait(name, action)
        return
    # Another thread may be at its import: this waits for the end of that.
    action(importlib.import_module(name))


def after_dynamo(action: Action) -> None:
    """Call ``action(torch._dynamo)`` now if Dynamo is there, else as soon as it is imported."""
    after_import("torch._dynamo", action)


def after_inductor(action: Action) -> None:
    """Call ``action(torch._inductor.compile_fx)`` now if it is there, else once it is imported."""
    after_import("torch._inductor.compile_fx", action)


def after_torch(action: Action) -> None:
    """Call ``action(torch)`` now if torch is there or on its way, else as soon as it is."""
    after_import("torch", action)


def torch_imports_us(environ: Mapping[str, str]) -> bool:
    """Does torch's autoload import this package, in such an environment?"""
    if environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") != "1":
        return False
    installed = importlib.metadata.entry_points(group=AUTOLOAD_GROUP)
    return BACKEND_NAME in installed.names


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
