"""Advice followed to the letter: the harness. `advised.py` runs it.

No kernel has to be compiled for most programs: their graphs have library calls only.
"""

import contextlib
import io
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import instrumented_backend

X = torch.arange(16.0).reshape(4, 4) / 16
log = logging.getLogger("a program")
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


def of_lengths(function: Any) -> Any:
    return [function(torch.ones(n, 4)) for n in (3, 4, 5)]


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
