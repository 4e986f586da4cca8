"""Programs for `advised.py`: what a function changes itself, and what it cannot have in it."""

import os
import time
from typing import Any

import torch
from advising import Run, X, case, compiled, of_lengths
from torch import Tensor, nn

config = torch._dynamo.config


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


@case("`time.perf_counter")  # torch 2.15 has a hint of its own: to move the call outside
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
            h = X.clone()  # X itself would be guarded on
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
