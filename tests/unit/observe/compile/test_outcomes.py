"""What became of a `torch.compile`, of what was noted while it ran."""

from types import SimpleNamespace
from typing import Any, cast

from instrumented_backend.observe.compile import outcomes
from instrumented_backend.records import CompiledRecord


def test_the_recompile_limit_of_what_it_calls() -> None:
    """An optimizer's step, compiled with the function that calls it: the function itself has run
    compiled, and the limit is the step's."""
    record = CompiledRecord(0, "torch.compile(train)", "/me/train.py", 3, "train")
    before = record.outcome
    one = SimpleNamespace(limit_hits=1, causes=[], stances={}, inlined=False)
    outcomes._decide(record, cast(Any, one), calls=12, served=True)
    assert (record.outcome, record.reason) == (before, None)
