"""A program, and what went wrong with it in twenty edits; each marks the line that is to blame."""

PROGRAM = """\
import contextlib
import logging
import random

import torch

SCALE = 2.0
BAG = [1]
OPTIONS = {}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.count = 1

    def helper(self, x):
        return x * 3

    def forward(self, x, n):
        y = self.helper(x).sin()
        y = y + 1
        z = y.cos()
        return z * 2


def update(w, g):
    w.mul_(0.5)
    w.add_(g)


def main():
    global SCALE
    model = Model()
    step = torch.compile(model, backend="instrumented", options=OPTIONS)
    apply = torch.compile(update, backend="instrumented")
    w, g = torch.ones(8), torch.full((8,), 0.1)
    for i in range(4):
        x = torch.ones(8)
        n = 1
        step(x, n)
        apply(w, g)
"""

_PLACE = "        y = y + 1\n"
_DEFINITION = "    def forward(self, x, n):\n"


def _insert(line: str) -> list[tuple[str, str]]:
    return [(_PLACE, f"{_PLACE}        {line}  # HERE\n")]


def _loop(was: str, now: str) -> list[tuple[str, str]]:
    """What the loop does otherwise; it is told at the function that is recompiled for it."""
    return [(was, now), (_DEFINITION, "    def forward(self, x, n):  # HERE\n")]


_OPAQUE = """

@torch.library.custom_op("gate::opaque", mutates_args=())
def opaque(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


@opaque.register_fake
def _(x):
    return torch.empty_like(x)


class Model("""

# By name: (what stands in the program, what stands there then), as often as it takes.
EDITS: dict[str, list[tuple[str, str]]] = {
    "a print": _insert('print("here")'),
    "an item": _insert("y = y + y.sum().item()"),
    "a list": _insert("y = y + y.tolist()[0]"),
    "a branch on data": _insert("y = y + 1 if y.sum() > 0 else y"),
    "a size that depends on data": _insert("y = y[y > 0]"),
    "a log line": _insert('logging.getLogger("gate").info("here")'),
    "a print that nothing resumes after": [
        (
            _PLACE,
            _PLACE + "        with contextlib.suppress(ValueError):\n"
            '            print("here")  # HERE\n',
        )
    ],
    "a disabled function": [
        ("    def helper", "    @torch.compiler.disable\n    def helper"),
        ("y = self.helper(x).sin()\n", "y = self.helper(x).sin()  # HERE\n"),
    ],
    "a guard on a global": [
        *_insert("y = y * SCALE"),
        ("        n = 1\n", "        n = 1\n        SCALE += 1\n"),
    ],
    "a guard on a list's length": [
        *_insert("y = y + len(BAG)"),
        ("        n = 1\n", "        n = 1\n        BAG.append(1)\n"),
    ],
    "a guard on an attribute": [
        *_insert("y = y + self.count"),
        ("        n = 1\n", "        n = 1\n        model.count += 1\n"),
    ],
    "a guard on a number": [*_insert("y = y * n"), ("        n = 1\n", "        n = 0.5 + i\n")],
    "a size that changes": _loop("x = torch.ones(8)", "x = torch.ones(8 + i // 2)"),
    "a type that changes": _loop(
        "x = torch.ones(8)", "x = torch.ones(8, dtype=[torch.float32, torch.float64][i % 2])"
    ),
    "a mode that changes": _loop(
        "        step(x, n)",
        "        with torch.set_grad_enabled(i % 2 == 0):\n            step(x, n)",
    ),
    "an op without a lowering": _insert("y = torch.histc(y, 8)"),
    "a fusion that is prevented": [
        ("\n\nclass Model(", _OPAQUE),
        *_insert("y = torch.ops.gate.opaque(y)"),
    ],
    "twice the bytes": _insert("y = y.double()"),
    "an optimizer that is no longer compiled": [
        ('torch.compile(update, backend="instrumented")', "update"),
        ("    w.mul_(0.5)\n    w.add_(g)\n", "    w.mul_(0.5).add_(g)  # HERE\n"),
    ],
    "a graph that cannot be cached": [
        ("OPTIONS = {}", 'OPTIONS = {"post_grad_custom_post_pass": lambda graph: None}'),
        (_DEFINITION, "    def forward(self, x, n):  # HERE\n"),
    ],
    "a cache key that moves": [
        ("y = y + 1\n", "y = y + OFFSET\n"),
        ("OPTIONS = {}", "OPTIONS = {}\nOFFSET = random.random()"),
        (_DEFINITION, "    def forward(self, x, n):  # HERE\n"),
    ],
}


def edited(name: str) -> str:
    """The program with what went wrong; ``""`` is the program as it was."""
    source = PROGRAM
    for was, now in EDITS[name] if name else ():
        assert source.count(was) == 1, (name, was)
        source = source.replace(was, now)
    return source


def guilty_line(name: str) -> int:
    (line,) = [i for i, text in enumerate(edited(name).splitlines(), 1) if "# HERE" in text]
    return line
