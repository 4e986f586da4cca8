"""Each ``torch.compile`` that asked for this backend, and what became of it."""

import inspect
import itertools
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, MethodType
from typing import Any

import torch

from instrumented_backend.observe.compile.model_path import contains, model_path
from instrumented_backend.observe.failures import Failures
from instrumented_backend.observe.messages.call_site import CallSite, call_site, callers
from instrumented_backend.observe.messages.user_code import is_internal
from instrumented_backend.observe.observer import Observer
from instrumented_backend.records import notes
from instrumented_backend.torch_compat import compiled as torch_compiled
from instrumented_backend.torch_compat import dynamo

MAX_COMPILED = 10_000
MAX_CAUSES = 8  # of one torch.compile
_OF_MODULES = ("_call_impl", "_wrapped_call_impl", "forward")

Function = tuple[str | None, str | None, int | None]  # a function: name, file, first line


@dataclass(frozen=True)
class Cause:
    """Why a function was not compiled, and where it is known."""

    code: str
    reason: str
    function: Function
    file: str | None = None
    line: int | None = None


@dataclass
class Target:
    """What ``torch.compile`` was given, without keeping it alive."""

    name: str
    path: str | None  # of a module in its model
    code: "weakref.ref[CodeType] | None"  # the function's, or that of the module's forward
    code_id: int | None
    function: Function
    is_disabled: bool
    is_class: bool
    module: "weakref.ref[torch.nn.Module] | None" = None
    method: str | None = None  # of the module, where it is not its forward

    @property
    def module_id(self) -> int | None:
        module = self.module() if self.module is not None else None
        return None if module is None else id(module)

    def find_path(self, frame: Any) -> None:
        """Where the module is in its model: it may be put there after ``torch.compile``."""
        module = self.module() if self.module is not None else None
        if module is not None and "." not in (self.path or ""):
            path = model_path(module, frame)
            self.path = path if self.method is None else f"{path}.{self.method}"

    def may_be_in(self, other: "Target") -> bool:
        """Can a graph of the other ``torch.compile`` have been compiled because of this one?"""
        module = self.module() if self.module is not None else None
        root = other.module() if other.module is not None else None
        return module is None or root is None or (module is not root and contains(root, module))


class Compiled:
    """One ``torch.compile`` while the program runs."""

    def __init__(
        self,
        number: int,
        site: CallSite | None,
        target: Target,
        calls: torch_compiled.Calls | None,
        by_method: bool = False,
    ) -> None:
        """``calls`` is None where ``torch.compile`` returned what it was given."""
        self.number = number
        self.site = site
        self.by_method = by_method  # `model.compile()`
        self.target = target
        self._calls = calls
        self.graphs = 0
        self.inherited = False  # from the process that this one was forked from
        self.reset()

    def reset(self) -> None:
        self._called_before = self._calls.value if self._calls is not None else 0
        self._seen = 0
        self.stances: dict[str, int] = {}  # calls under each but the default
        self.causes: list[Cause] = []
        self.limit_hits = 0
        self.first_eager_call: int | None = None
        self.raised = 0
        self.inlined = False

    @property
    def is_off(self) -> bool:
        return self._calls is None

    @property
    def calls(self) -> int:
        return 0 if self._calls is None else self._calls.value - self._called_before

    def left_stance(self, stance: str) -> None:
        """Book the calls since the last time as made under ``stance``."""
        calls = self.calls
        if stance != torch_compiled.DEFAULT_STANCE and calls > self._seen:
            self.stances[stance] = self.stances.get(stance, 0) + calls - self._seen
        self._seen = calls

    def add_cause(self, cause: Cause) -> None:
        """Add a cause. In a function of torch's it counts only if that is what was compiled."""
        is_target = cause.function[1:] == self.target.function[1:]
        if not is_target and is_internal(cause.function[1] or ""):
            return
        if len(self.causes) < MAX_CAUSES and cause not in self.causes:
            self.causes.append(cause)

    def refused(self) -> None:
        """The recompile limit: from this call on, what no compiled version fits runs eagerly."""
        self.limit_hits += 1
        if self.first_eager_call is None:
            self.first_eager_call = self.calls


class CompiledLog(Observer):
    """Takes note of each ``torch.compile``, and counts the calls of what it returned."""

    def __init__(self, failures: Failures) -> None:
        self._failures = failures
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._by_backend: dict[int, tuple[Callable[[], Any], Compiled]] = {}
        self._modules_compiled: set[tuple[int, int]] = set()  # module, code
        self._watching = False

    def start(self) -> None:
        if not self._watching:
            self._watching = True
            torch_compiled.patch_compiled(self._made)
            torch_compiled.watch_stance(self._left_stance)
            torch_compiled.watch_skips(self._skipped)

    def reset(self) -> None:
        for one in self.all():
            one.reset()

    def after_fork(self) -> None:
        """What was compiled before the fork has graphs that this process does not list."""
        self._lock = threading.Lock()
        for key, (_, one) in list(self._by_backend.items()):
            one.inherited = True
            if one.graphs:
                del self._by_backend[key]

    def all(self) -> list[Compiled]:
        with self._lock:
            return [one for _, one in self._by_backend.values()]

    def of_backend(self, backend: Any) -> Compiled | None:
        """The ``torch.compile`` that made this backend."""
        known = self._by_backend.get(id(backend))
        return known[1] if known is not None and known[0]() is backend else None

    # --- What torch does ------------------------------------------------------------------------

    def _made(self, context: Any, function: Any) -> None:
        with self._failures.guard("torch.compile"):
            backend = torch_compiled.backend_of(context)
            if not dynamo.is_ours(backend):
                return
            if self.of_backend(backend) is not None or len(self._by_backend) >= MAX_COMPILED:
                return
            frame = sys._getframe(1)
            one = Compiled(
                next(self._numbers),
                call_site(frame),
                _target(function, frame),
                torch_compiled.Calls(context),
                _is_by_method(frame),
            )
            with self._lock:
                # One of the same id is gone: its torch.compile cannot be called any more.
                old = self._by_backend.pop(id(backend), None)
                if old is not None:
                    self._by_backend[-1 - old[1].number] = old
                self._by_backend[id(backend)] = weakref.ref(backend), one

    def off(self, function: Any) -> None:
        """A ``torch.compile`` that returned what it was given: no call of it will be seen."""
        with self._failures.guard("torch.compile"):
            if len(self._by_backend) >= MAX_COMPILED:
                return
            frame = sys._getframe(1)
            one = Compiled(
                next(self._numbers), call_site(frame), _target(function, frame), calls=None
            )
            with self._lock:
                self._by_backend[-1 - one.number] = _nobody, one

    def _left_stance(self, stance: str) -> None:
        with self._failures.guard("stances"):
            for one in self.all():
                one.left_stance(stance)

    def _skipped(self, backend: Any, code: CodeType, reason: str) -> None:
        with self._failures.guard("skipped functions"):
            one = self.of_backend(backend)
            if one is None:
                return
            if id(code) == one.target.code_id:
                is_reason = not torch_compiled.is_skipped(code)
            else:
                is_reason = torch_compiled.is_entry(code) and torch_compiled.in_dispatch_mode()
            if is_reason:
                words = f"Dynamo skips it: {reason}"
                one.add_cause(Cause(notes.SKIPPED, words, one.target.function))

    # --- What Dynamo compiles -------------------------------------------------------------------

    def graph_opened(self, under_way: dynamo.CompilationUnderWay) -> int | None:
        """The number of the ``torch.compile`` that a graph is made for.

        Functions in the graph may have a ``torch.compile`` of their own.
        """
        maker = self.of_backend(under_way.backend)
        if maker is None:
            return None
        if not maker.graphs:
            maker.target.find_path(sys._getframe(1))
        inner = {id(code) for code in torch_compiled.traced_code()[1:]}
        for one in self.all():
            if one is not maker and one.target.code_id in inner:
                one.inlined |= one.target.may_be_in(maker.target)
        return maker.number

    def number(self, under_way: dynamo.CompilationUnderWay) -> int | None:
        """The number of the ``torch.compile`` for which Dynamo is compiling."""
        one = self.of_backend(under_way.backend)
        return None if one is None else one.number

    def call(self, under_way: dynamo.CompilationUnderWay) -> int | None:
        """Which call of the ``torch.compile`` the program has come to."""
        one = self.of_backend(under_way.backend)
        return None if one is None or not one.calls else one.calls

    def is_first(self, under_way: dynamo.CompilationUnderWay) -> bool:
        """Is it the first of a module, in code that Dynamo has compiled for another one?

        Modules of one class share its code, and those of torch's classes share a function of
        Dynamo's: it compares one with the other, and calls what follows a recompilation.
        """
        one = self.of_backend(under_way.backend)
        if one is None or one.target.module_id is None or under_way.code is None:
            return False
        return (one.target.module_id, id(under_way.code)) not in self._modules_compiled

    def has_code(self, under_way: dynamo.CompilationUnderWay) -> None:
        """Dynamo has code for a function; it may have no graph, as where it breaks at once."""
        one = self.of_backend(under_way.backend)
        if one is None or one.target.module_id is None or under_way.code is None:
            return
        self._modules_compiled.add((one.target.module_id, id(under_way.code)))

    def compiled(self, under_way: dynamo.CompilationUnderWay, graphs: int) -> None:
        """``graphs`` were made for a function."""
        one = self.of_backend(under_way.backend)
        if one is not None:
            one.graphs += graphs

    def not_compiled(
        self,
        under_way: dynamo.CompilationUnderWay,
        cause: Cause,
        raised: bool = False,
    ) -> None:
        """Dynamo has left a function as it is, or has failed with an exception."""
        one = self.of_backend(under_way.backend)
        if one is not None:
            one.raised += raised
            one.add_cause(cause)
            if cause.code == notes.RECOMPILE_LIMIT:
                one.refused()


def _nobody() -> None:
    """In the place of a reference to a backend."""


# --- What was given to torch.compile ------------------------------------------------------------


def _target(function: Any, frame: Any) -> Target:
    is_class = inspect.isclass(function)
    disabled = torch_compiled.is_disabled(function)
    function = function if is_class else torch_compiled.innermost(function)
    module = method = None
    called = function
    if issubclass(type(function), torch.nn.Module):
        module = function
    elif isinstance(function, MethodType) and issubclass(type(function.__self__), torch.nn.Module):
        module = function.__self__
        if function.__name__ not in _OF_MODULES:
            method = function.__name__
    if module is not None and method is None:
        # Not by attribute: the program may have its own way with them.
        called = vars(module).get("forward") or _of_class(type(module), "forward")
    disabled |= torch_compiled.is_disabled(called)
    found = getattr(torch_compiled.innermost(called), "__code__", None)
    code = found if isinstance(found, CodeType) else None
    target = Target(
        name=_name(function) if module is None else type(module).__name__,
        path=None,
        code=None if code is None else weakref.ref(code),
        code_id=None if code is None else id(code),
        function=_place(code),
        is_disabled=disabled,
        is_class=is_class,
        module=None if module is None else weakref.ref(module),
        method=method,
    )
    target.find_path(frame)
    return target


def _is_by_method(frame: Any) -> bool:
    """Did the program call a module's own ``compile``?"""
    method = torch.nn.Module.compile.__code__
    torchs = itertools.takewhile(lambda one: is_internal(one.f_code.co_filename), callers(frame))
    return any(one.f_code is method for one in torchs)


def _of_class(kind: type, name: str) -> Any:
    """As it stands in the class: TorchScript's modules have a descriptor there that raises."""
    found = inspect.getattr_static(kind, name)
    return found.__func__ if isinstance(found, staticmethod | classmethod) else found


def _place(code: CodeType | None) -> Function:
    if code is None:
        return None, None, None
    return code.co_name, code.co_filename, code.co_firstlineno


def _name(function: Any) -> str:
    name = getattr(function, "__qualname__", None)
    if not isinstance(name, str):
        return type(function).__name__
    return name.rpartition("<locals>.")[2]
