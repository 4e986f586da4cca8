"""Programs with a cause that the report names, as they are, and with its advice followed.

    python advised.py

Prints a JSON line for each: what was advised, the causes before and after, and whether the program
still does what it did.
"""

from collections.abc import Callable
from typing import Any

import advised_itself  # noqa: F401 - more programs
import torch
from advising import Run, X, case, compiled, log, main, of_lengths
from torch import Tensor, nn

FACTOR = 3
config = torch._dynamo.config


# --- Breaks --------------------------------------------------------------------------------------


@case("torch._dynamo.config.reorderable_logging_functions.add(print)")
def prints() -> tuple[Run, Run]:
    def f(x: Tensor) -> Tensor:
        y = x.mm(x)
        print("between", 3)
        return y.mm(x)

    def after() -> Any:
        with config.patch(reorderable_logging_functions={print}):
            return compiled(f)(X)

    return lambda: compiled(f)(X), after


@case("log what the function returns, after the call")
def logs() -> tuple[Run, Run]:
    def f(x: Tensor) -> Tensor:
        y = x.mm(x)
        log.warning("between")
        return y.mm(x)

    def after() -> Any:
        result = compiled(lambda x: x.mm(x).mm(x))(X)
        log.warning("between")
        return result

    return lambda: compiled(f)(X), after


@case("capture_scalar_outputs")
def item() -> tuple[Run, Run]:
    def f(x: Tensor) -> Tensor:
        return torch.full((4, 4), x.sum().item()).mm(x)

    def after() -> Any:
        with config.patch(capture_scalar_outputs=True):
            return compiled(f)(X)

    return lambda: compiled(f)(X), after


@case("capture_dynamic_output_shape_ops")
def nonzero() -> tuple[Run, Run]:
    def f(x: Tensor) -> Tensor:
        return x.nonzero().t().mm(x.nonzero())

    def after() -> Any:
        with config.patch(capture_dynamic_output_shape_ops=True):
            return compiled(f)(X)

    return lambda: compiled(f)(X), after


def doubled(x: Tensor) -> Tensor:
    return x.mm(x)


@case("take torch.compiler.disable off it")
def disabled() -> tuple[Run, Run]:
    helper = torch.compiler.disable(doubled)
    return lambda: compiled(lambda x: helper(x).mm(x))(X), lambda: compiled(
        lambda x: doubled(x).mm(x)
    )(X)


@case("call it outside of the compiled function")
def disabled_by_others() -> tuple[Run, Run]:
    helper = torch.compiler.disable(doubled)
    return lambda: compiled(lambda x: helper(x.mm(x)))(X), lambda: helper(
        compiled(lambda x: x.mm(x))(X)
    )


@case("call tolist() outside of the compiled function")
def tolist() -> tuple[Run, Run]:
    def f(x: Tensor) -> Any:
        return x.mm(x).tolist()

    return lambda: compiled(f)(X), lambda: compiled(lambda x: x.mm(x))(X).tolist()


@case("Remove the `torch._dynamo.graph_break()` call")
def asked_for() -> tuple[Run, Run]:
    def f(x: Tensor) -> Tensor:
        y = x.mm(x)
        torch._dynamo.graph_break()
        return y.mm(x)

    return lambda: compiled(f)(X), lambda: compiled(lambda x: x.mm(x).mm(x))(X)


# --- Recompiles ----------------------------------------------------------------------------------


def square(x: Tensor) -> Tensor:
    return x.t().mm(x)


@case("torch.compile(dynamic=True)")
def lengths() -> tuple[Run, Run]:
    return lambda: of_lengths(compiled(square)), lambda: of_lengths(compiled(square, dynamic=True))


@case("torch._dynamo.maybe_mark_dynamic(x, 0) before the first call")
def marked_lengths() -> tuple[Run, Run]:
    def after() -> Any:
        function, inputs = compiled(square), [torch.ones(n, 4) for n in (3, 4, 5)]
        torch._dynamo.maybe_mark_dynamic(inputs[0], 0)
        return [function(x) for x in inputs]

    return lambda: of_lengths(compiled(square)), after


@case("torch.compile(dynamic=True)")
def integers() -> tuple[Run, Run]:
    def f(x: Tensor, n: int) -> Tensor:
        return x.mm(x.expand(4, 4)) if n > 2 else x

    def run(function: Any) -> Any:
        return [function(X, n) for n in (3, 4, 5)]

    return lambda: run(compiled(f)), lambda: run(compiled(f, dynamic=True))


@case("pass it as a tensor (torch.tensor(value)) where it is computed with")
def floats() -> tuple[Run, Run]:
    def f(x: Tensor, p: Any) -> Tensor:
        return torch.add(x.mm(x), p).mm(x)

    def run(function: Any, kind: Any) -> Any:
        return [function(X, kind(p)) for p in (1.5, 2.5, 3.5)]

    return lambda: run(compiled(f), float), lambda: run(compiled(f), torch.tensor)


@case("pass it as an argument")
def globals_() -> tuple[Run, Run]:
    def f(x: Tensor) -> Tensor:
        return x.mm(x) if FACTOR > 2 else x

    def g(x: Tensor, factor: Tensor) -> Tensor:
        return x.mm(x)  # whatever it is: 3 and 4 are more than 2

    def before() -> Any:
        global FACTOR
        function, found = compiled(f), []
        for factor in (3, 4):
            FACTOR = factor
            found.append(function(X))
        return found

    def after() -> Any:
        function = compiled(g)
        return [function(X, torch.tensor(factor)) for factor in (3, 4)]

    return before, after


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = 2

    def forward(self, x: Tensor) -> Tensor:
        return x.mm(x) if self.scale > 1 else x


def scaled(**how: Any) -> Any:
    model, found = Scaled(), []
    function = compiled(model, **how)
    for model.scale in (2, 3, 4):
        found.append(function(X))
    return found


@case("allow_unspec_int_on_nn_module = True, with torch.compile(dynamic=True)")
def attributes() -> tuple[Run, Run]:
    def after() -> Any:
        with config.patch(allow_unspec_int_on_nn_module=True):
            return scaled(dynamic=True)

    return scaled, after


@case("call .contiguous()")
def strides() -> tuple[Run, Run]:
    def run(function: Any, change: Callable[[Tensor], Tensor]) -> Any:
        return [function(change(x)) for x in (X, X.t())]

    def plain(x: Tensor) -> Tensor:
        return x

    return lambda: run(compiled(doubled), plain), lambda: run(compiled(doubled), Tensor.contiguous)


@case("stack the items into one tensor before the call")
def items() -> tuple[Run, Run]:
    def f(tensors: Any) -> Tensor:
        return torch.stack(list(tensors)).sum(0).mm(X)

    def before() -> Any:
        function = compiled(f)
        return [function([X] * n) for n in (2, 3, 4)]

    def after() -> Any:
        function = compiled(lambda stacked: stacked.sum(0).mm(X), dynamic=True)
        return [function(torch.stack([X] * n)) for n in (2, 3, 4)]

    return before, after


@case("enter autocast in the same way for every call")
def autocast() -> tuple[Run, Run]:
    def before() -> Any:
        function = compiled(doubled)
        with torch.autocast("cpu", enabled=False):
            first = function(X)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return [first, function(X)]

    def after() -> Any:
        """Each in a function of its own, which has always the same."""
        one, other = compiled(doubled), compiled(lambda x: x.mm(x))
        with torch.autocast("cpu", enabled=False):
            first = one(X)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return [first, other(X)]

    return before, after


@case("set it before the first call")
def settings_of_a_model() -> tuple[Run, Run]:
    class Config:
        problem_type: str | None = None

    class Model(nn.Module):
        def __init__(self, problem_type: str | None) -> None:
            super().__init__()
            self.config = Config()
            self.config.problem_type = problem_type

        def forward(self, x: Tensor) -> Tensor:
            if self.config.problem_type is None:
                self.config.problem_type = "single_label_classification"
            return x.mm(x) if self.config.problem_type[0] == "s" else x

    def run(problem_type: str | None) -> Any:
        function = compiled(Model(problem_type))
        return [function(X) for _ in range(3)]

    return lambda: run(None), lambda: run("single_label_classification")


# --- No fault: nothing to change -----------------------------------------------------------------


@case("one graph for each is usual")
def dtypes() -> tuple[Run, Run]:
    def run() -> Any:
        function = compiled(doubled)
        return [function(X), function(X.double())]

    return run, run


@case("one graph for each is usual")
def gradients_of_an_input() -> tuple[Run, Run]:
    def run() -> Any:
        function, x = compiled(doubled), X.clone().requires_grad_()
        function(X)
        function(x).sum().backward()
        return x.grad

    return run, run


if __name__ == "__main__":
    main()
