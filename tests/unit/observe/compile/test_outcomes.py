"""What became of a `torch.compile`, of what was noted while it ran."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from instrumented_backend.observe.compile import outcomes
from instrumented_backend.observe.compile.compiled import Cause
from instrumented_backend.records import CompiledRecord, Compiling, notes


def test_the_recompile_limit_of_what_it_calls() -> None:
    """An optimizer's step, compiled with the function that calls it: the function itself has run
    compiled, and the limit is the step's."""
    record = CompiledRecord(0, "torch.compile(train)", "/me/train.py", 3, "train")
    before = record.outcome
    one = SimpleNamespace(limit_hits=1, causes=[], stances={}, inlined=False)
    outcomes._decide(record, cast(Any, one), calls=12, served=True, compiling=[])
    assert (record.outcome, record.reason) == (before, None)


FUNCTION = ("train", "/me/train.py", 3)
BROKEN = Cause(notes.GRAPH_BREAK, "it prints", FUNCTION, "/me/train.py", 4)


@pytest.mark.parametrize(
    "causes, compiling_line, outcome, eager_calls",
    [
        ([], 3, "compiling", None),
        ([], 30, "compiling", None),  # a function that it calls
        ([], None, "ran eagerly", 1),
        ([BROKEN], 3, "compiling", None),
        ([BROKEN], 30, "ran eagerly", 1),
    ],
)
def test_a_call_in_which_something_is_being_compiled(
    causes: list[Cause], compiling_line: int | None, outcome: str, eager_calls: int | None
) -> None:
    """A snapshot of its first call says nothing of eager calls yet."""
    record = CompiledRecord(0, "torch.compile(train)", "/me/train.py", 9, "train", eager_calls=1)
    target = SimpleNamespace(function=FUNCTION, name="train", code=None, is_disabled=False)
    one = SimpleNamespace(target=target, causes=causes, stances={}, inlined=False, raised=0)
    compiling = [Compiling("0/0", "f", "/me/train.py", compiling_line, since_at=1e9)]
    outcomes._decide(
        record,
        cast(Any, one),
        calls=1,
        served=False,
        compiling=compiling if compiling_line else [],
    )
    assert (record.outcome, record.eager_calls) == (outcome, eager_calls)
