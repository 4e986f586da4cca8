"""How a run makes its change: by public names of torch, before the program uses them."""

import contextlib
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

from instrumented_backend.torch_compat import compiled
from instrumented_backend.trials import changes

Count = Callable[[], None]  # called for each place that the change is made in
Note = Callable[[str], None]  # called with what is to be said of the change
Mark = Callable[[Any], None]  # called with an optimizer, after a step of it that was compiled
_CAN_BE_FUSED = ("Adam", "AdamW", "SGD", "Adagrad")
_OURS = ("inductor", "instrumented")


def apply(torch: Any, name: str, count: Count, mark: Mark, note: Note) -> None:
    """Make the change of that name in this process."""
    change = changes.BY_NAME[name]
    if change.mode is not None:
        mode = change.mode
        _change_compile(torch, lambda given: _with_mode(torch, given, mode), count)
    elif name == changes.DYNAMIC:
        _change_compile(torch, lambda given: {**given, "dynamic": True}, count)
    elif name == changes.EAGER:
        _change_compile(torch, lambda given: _eagerly(torch, given), count)
    elif name == changes.COMPILED_OPTIMIZER:
        _compile_steps(torch, count, mark, note)
    elif name == changes.FUSED_OPTIMIZER:
        _fuse_steps(torch, count)
    elif name == changes.MATMUL_HIGH:
        torch.set_float32_matmul_precision("high")
        count()


def _change_compile(
    torch: Any, changed: Callable[[dict[str, Any]], dict[str, Any]], count: Count
) -> None:
    """``nn.Module.compile`` and decorators come through here, too."""
    original = torch.compile

    @functools.wraps(original)
    def compile(*args: Any, **given: Any) -> Any:
        backend = given.get("backend", "inductor")
        if getattr(backend, "__name__", backend) in _OURS and not given.get("disable"):
            count()
            given = changed(given)
        return original(*args, **given)

    torch.compile = compile


def _with_mode(torch: Any, given: dict[str, Any], mode: str) -> dict[str, Any]:
    options = given.get("options")
    if not options:
        return {**given, "mode": mode}
    # torch.compile takes one or the other.
    return {**given, "options": {**compiled.mode_options(mode, given.get("dynamic")), **options}}


def _eagerly(torch: Any, given: dict[str, Any]) -> dict[str, Any]:
    """What is compiled is still called through Dynamo's wrapper, or no calls could be counted."""
    torch.compiler.set_stance("force_eager")
    return given


class _Rates:
    """The learning rates of one optimizer, as its compiled step has them.

    A number that a scheduler changes would be recompiled for: from the first change on the step has
    tensors in their places, as it would with ``lr=torch.tensor(...)``. Outside of the step they
    are the numbers that the program knows.
    """

    def __init__(self, torch: Any, note: Note) -> None:
        self._torch = torch
        self._note = note
        self._first: list[Any] | None = None
        self._tensors: dict[int, Any] = {}

    @contextlib.contextmanager
    def as_tensors(self, groups: list[dict[str, Any]]) -> Iterator[None]:
        given = [group.get("lr") for group in groups]
        if self._first is None:
            self._first = given
        elif not self._tensors and given != self._first:
            self._note("the learning rate changes: lr=torch.tensor(...), given to the optimizer")
            self._tensors = {
                place: self._torch.tensor(float(rate))
                for place, rate in enumerate(given)
                if isinstance(rate, (int, float))
            }
        if not self._tensors:
            yield
            return
        changed = [(groups[place], given[place]) for place in self._tensors]
        for place, tensor in self._tensors.items():
            groups[place]["lr"] = tensor.fill_(given[place])
        try:
            yield
        finally:
            for group, rate in changed:
                group["lr"] = rate


def _compile_steps(torch: Any, count: Count, mark: Mark, note: Note) -> None:
    original = torch.optim.Optimizer.__init__

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        plain = type(self).step
        fast: list[Any] = []
        rates = _Rates(torch, note)

        @functools.wraps(plain)
        def step(self: Any, *args: Any, **kwargs: Any) -> Any:
            # A closure computes the loss: that is no part of the step.
            if torch.compiler.is_compiling() or args or kwargs:
                return plain(self, *args, **kwargs)
            if not fast:
                count()
                fast.append(torch.compile(types.MethodType(plain, self)))
            with rates.as_tensors(self.param_groups):
                result = fast[0]()
            mark(self)
            return result

        # A method: schedulers ask for its function.
        self.step = types.MethodType(step, self)

    torch.optim.Optimizer.__init__ = __init__


def _fuse_steps(torch: Any, count: Count) -> None:
    for name in _CAN_BE_FUSED:
        kind = getattr(torch.optim, name)
        kind.__init__ = _fused(kind.__init__, name, count)


def _fused(original: Callable[..., None], name: str, count: Count) -> Callable[..., None]:
    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        # AdamW is made by Adam's, and what the program asks for stays.
        if type(self).__name__ == name and not _asks(kwargs):
            count()
            kwargs = {**kwargs, "fused": True}
        original(self, *args, **kwargs)

    return __init__


def _asks(kwargs: dict[str, Any]) -> bool:
    return any(kwargs.get(name) is not None for name in ("foreach", "fused", "differentiable"))
