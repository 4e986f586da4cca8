"""Objects that take the kernels' place in a loaded module, so that each launch passes by us.

The wrapper of a generated module looks its kernels up as globals each time it calls them:
``kernel.run(...)`` for Triton, ``kernel(...)`` for C++, ``extern_kernels.mm(...)`` and
``torch.ops.aten.sort.default(...)`` for what Inductor did not generate.
"""

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from instrumented_backend.kernels.wrapper import is_extern

# Called with a name, what to call, and its arguments; returns what the call returns.
Launched = Callable[[str, Any, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]

_NAMESPACES = ("extern_kernels", "aten", "inductor_ops", "_quantized")


class KernelStandIn:
    """In a generated kernel's place: the launch, by ``run`` or by a call, goes to ``launched``."""

    def __init__(self, name: str, kernel: Any, launched: Launched) -> None:
        self._name = name
        self._kernel = kernel
        self._launched = launched

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._launched(self._name, self._kernel, self._kernel, args, kwargs)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        return self._launched(self._name, self._kernel, self._kernel.run, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernel, name)


class NamespaceStandIn:
    """In the place of ``extern_kernels``, ``aten``, ``torch.ops`` and what is found in them."""

    def __init__(self, name: str, value: Any, launched: Launched) -> None:
        self._name = name
        self._value = value
        self._launched = launched

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._value, name)
        path = f"{self._name}.{name}"
        if name.startswith("_") and not callable(value):
            return value
        return NamespaceStandIn(path, value, self._launched)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not is_extern(self._name):
            return self._value(*args, **kwargs)
        return self._launched(self._name, self._value, self._value, args, kwargs)


class TorchStandIn:
    """In the place of ``torch`` itself, of which only ``torch.ops`` is taken."""

    def __init__(self, torch: Any, launched: Launched) -> None:
        self._torch = torch
        self.ops = NamespaceStandIn("torch.ops", torch.ops, launched)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._torch, name)


def install(module: ModuleType, kernels: Iterable[str], launched: Launched) -> Callable[[], None]:
    """Put stand-ins into the module; returns what takes them out again."""
    names = vars(module)
    before: dict[str, Any] = {}
    for name in kernels:
        if callable(names.get(name)) or hasattr(names.get(name), "run"):
            before[name] = names[name]
            names[name] = KernelStandIn(name, names[name], launched)
    for name in _NAMESPACES:
        if name in names:
            before[name] = names[name]
            names[name] = NamespaceStandIn(name, names[name], launched)
    if "torch" in names:
        before["torch"] = names["torch"]
        names["torch"] = TorchStandIn(names["torch"], launched)

    def undo() -> None:
        names.update(before)

    return undo
