"""Programs with a cause that the report names, as they are, and with its advice followed.

    python advised.py

Prints a JSON line for each: what was advised, the causes before and after, and whether the program
still does what it did. No kernel has to be compiled: the graphs have library calls only.
"""

import contextlib
import io
import json
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import instrumented_backend

X = torch.arange(16.0).reshape(4, 4) / 16
FACTOR = 3
log = logging.getLogger("a program")
config = torch._dynamo.config
Run = Callable[[], Any]


def compiled(function: Any, **how: Any) -> Any:
    return torch.compile(function, backend="instrumented", **how)


@dataclass
class Case:
    """``advice`` is a part of what is printed; None: nothing is, because it is no fault."""

    advice: str | None
    before: Run
    after: Run


CASES: dict[str, Case] = {}


def case(advice: str | None) -> Callable[[Callable[[], tuple[Run, Run]]], None]:
    """A function that returns the program before and after."""

    def add(make: Callable[[], tuple[Run, Run]]) -> None:
        CASES[make.__name__] = Case(advice, *make())

    return add


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


def of_lengths(function: Any) -> Any:
    return [function(torch.ones(n, 4)) for n in (3, 4, 5)]


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


# --- What a function changes itself, or cannot have in it -----------------------------------------


class Remembering(nn.Module):
    """Keeps the means of what it returns."""

    def __init__(self, itself: bool) -> None:
        super().__init__()
        self.history: list[Tensor] = []
        self.itself = itself

    def forward(self, x: Tensor) -> Tensor:
        y = x.mm(x)
        if self.itself:
            self.history.append(y)
        return y


def remembered(itself: bool) -> Any:
    model, found = Remembering(itself), []
    function = compiled(model)
    for _ in range(3):
        found.append(function(X))
        if not itself:
            model.history.append(found[-1])
    return [*found, *model.history]


@case("change self.history outside of the compiled function, after the call")
def a_list_that_grows() -> tuple[Run, Run]:
    return lambda: remembered(True), lambda: remembered(False)


STEP = 0


@case("pass it as an argument, with torch.compile(dynamic=True)")
def a_counter() -> tuple[Run, Run]:
    def f(x: Tensor) -> Tensor:
        return x.mm(x) if STEP < 100 else x

    def g(x: Tensor, step: int) -> Tensor:
        return x.mm(x) if step < 100 else x

    def before() -> Any:
        global STEP
        function, found = compiled(f), []
        for step in (5, 6, 7):
            STEP = step
            found.append(function(X))
        return found

    def after() -> Any:
        function = compiled(g, dynamic=True)
        return [function(X, step) for step in (5, 6, 7)]

    return before, after


@case("give the optimizer lr=torch.tensor(...)")
def a_scheduler() -> tuple[Run, Run]:
    def run(rate: Any) -> Any:
        torch.manual_seed(0)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=rate)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        step = compiled(optimizer.step)
        for _ in range(4):
            optimizer.zero_grad()
            model(X).sum().backward()
            step()
            scheduler.step()
        return model.weight.detach()

    return lambda: run(0.5), lambda: run(torch.tensor(0.5))


@case("call `time.perf_counter` outside of the compiled function")
def a_clock() -> tuple[Run, Run]:
    def f(x: Tensor) -> Tensor:
        begun = time.perf_counter()
        y = x.mm(x)
        return y.mm(x) if time.perf_counter() >= begun else y

    def after() -> Any:
        begun = time.perf_counter()
        y = compiled(lambda x: x.mm(x).mm(x))(X)
        return y if time.perf_counter() >= begun else None

    return lambda: compiled(f)(X), after


@case("move the `with` statement out of the compiled function")
def a_file() -> tuple[Run, Run]:
    def f(x: Tensor) -> Tensor:
        y = x.mm(x)
        with open(os.devnull, "w") as file:
            file.write("a step")
        return y.mm(x)

    def after() -> Any:
        y = compiled(lambda x: x.mm(x).mm(x))(X)
        with open(os.devnull, "w") as file:
            file.write("a step")
        return y

    return lambda: compiled(f)(X), after


@case("compile what is inside of the loop")
def a_loop_over_a_size() -> tuple[Run, Run]:
    def f(x: Tensor) -> Tensor:
        h = X
        for t in range(x.shape[0]):
            h = h.mm(X) + x[t]
        return h

    def after() -> Any:
        body, found = compiled(lambda h, row: h.mm(X) + row), []
        for n in (3, 4, 5):
            h = X
            for row in torch.ones(n, 4):
                h = body(h, row)
            found.append(h)
        return found

    return lambda: of_lengths(compiled(f)), after


@case("mend the graph break that the function goes on after")
def a_value_over_a_break() -> tuple[Run, Run]:
    def f(x: Tensor) -> Tensor:
        total = x.sum().item()
        return x.mm(x) * total

    def run() -> Any:
        function = compiled(f)
        return [function(X * n) for n in (1, 2, 3)]

    def after() -> Any:
        with config.patch(capture_scalar_outputs=True):
            return run()

    return run, after


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


# --- All of them ---------------------------------------------------------------------------------


def causes(report: Any) -> list[str]:
    """What can be acted upon: breaks of the user's, and guards that decided."""
    found = [record.reason for record in report.breaks if record.whose is None]
    return found + [
        guard.kind for record in report.recompiles for guard in record.guards if guard.decided
    ]


def advice(report: Any) -> list[str]:
    told = [record.hint for record in report.breaks if record.whose is None]
    told += [guard.cure for record in report.recompiles for guard in record.guards]
    return [text for text in told if text]


def observed(run: Run) -> tuple[Any, str, Any]:
    """Its result, what it prints, and the report."""
    torch._dynamo.reset()
    instrumented_backend.reset()
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        result = run()
    return result, said.getvalue(), instrumented_backend.report()


def same(one: Any, other: Any) -> bool:
    if isinstance(one, list) and not isinstance(other, Tensor):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(torch.equal(torch.as_tensor(one), torch.as_tensor(other)))


def main() -> None:
    heard: list[str] = []
    handler = logging.StreamHandler(io.StringIO())
    handler.emit = lambda record: heard.append(record.getMessage())  # type: ignore[method-assign]
    log.addHandler(handler)
    log.propagate = False
    for name, known in CASES.items():
        rows = []
        for run in (known.before, known.after):
            heard.clear()
            rows.append((*observed(run), list(heard)))
        (first, printed, report, logged), (second, printed_2, report_2, logged_2) = rows
        print(
            json.dumps(
                {
                    "name": name,
                    "expected": known.advice,
                    "advice": advice(report),
                    "before": causes(report),
                    "after": causes(report_2),
                    "same": same(first, second) and (printed, logged) == (printed_2, logged_2),
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
