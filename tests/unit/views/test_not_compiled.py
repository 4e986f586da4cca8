"""The loudest lines: what torch.compile was asked for and did not do."""

from dataclasses import replace

import pytest
from sample_report import sample

from instrumented_backend.records import CompiledRecord, Report, notes
from instrumented_backend.records.compiled import (
    COMPILED,
    EAGER,
    INLINED,
    NEVER_CALLED,
    PARTLY_EAGER,
    RAISED,
)
from instrumented_backend.views.not_compiled import MAX_LINES, not_compiled


def record(**changes: object) -> CompiledRecord:
    plain = CompiledRecord(
        compiled=0,
        call="torch.compile(model)",
        file="/home/me/here/train.py",
        line=31,
        target="Sequential",
        outcome=EAGER,
        calls=300,
        eager_calls=300,
        reason="Sequential's own frames are torch's, which Dynamo skips.",
        reason_code=notes.TORCHS_FRAMES,
    )
    return replace(plain, **changes)


def report(*records: CompiledRecord, graphs: bool = False) -> Report:
    found = sample()
    found.compiled = list(records)
    if not graphs:
        found.graphs = []
    return found


def test_nothing_was_compiled() -> None:
    (line,) = not_compiled(report(record()))
    assert line == (
        "nothing was compiled: torch.compile(model) at .../here/train.py:31 was called 300 times "
        "and ran eagerly: Sequential's own frames are torch's, which Dynamo skips; "
        "compile the module that calls it"
    )


def test_one_among_others() -> None:
    (line,) = not_compiled(report(record(), graphs=True))
    assert line.startswith("not compiled: torch.compile(model) at ")


@pytest.mark.parametrize("outcome", [COMPILED, INLINED])
def test_where_all_is_well_there_is_nothing_to_say(outcome: str) -> None:
    assert not_compiled(report(record(outcome=outcome), graphs=True)) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"outcome": NEVER_CALLED},
            "torch.compile(model) at .../here/train.py:31 was never called; call what it returned",
        ),
        (
            {"outcome": NEVER_CALLED, "path": "Model"},
            "only the call of what it returned runs compiled code, not the model nor a method",
        ),
        (
            {"outcome": NEVER_CALLED, "call": "model.compile()", "path": "Model"},
            "only model(...) runs compiled code, not model.forward(...) or a copy of it",
        ),
        (
            {"outcome": NEVER_CALLED, "calls": None},
            "was never called; it compiles the calls of its instances alone",
        ),
        ({"outcome": NEVER_CALLED, "call": "@torch.compile"}, "; call the function by its name"),
        (
            {"calls": None, "reason": "ENV=1", "reason_code": notes.SWITCHED_OFF},
            "train.py:31 compiles nothing: ENV=1 is set; unset it",
        ),
        ({"outcome": RAISED, "calls": 1}, "was called 1 time and raised: Sequential's"),
        ({"calls": None}, "was called and ran eagerly: "),
        ({"path": "Model.head"}, ":31 (Model.head) was called"),
        ({"path": "Sequential"}, ":31 was called"),
        (
            {"call": "model.compile()", "receiver": "model"},
            "; use torch.compile(model), or compile the module that",
        ),
        ({"reason": None, "reason_code": None}, "and ran eagerly: unknown"),
        (
            {"reason_file": "/home/me/here/model.py", "reason_line": 7},
            "Dynamo skips, at .../here/model.py:7; compile",
        ),
        (
            {"reason_file": "/home/me/here/train.py", "reason_line": 31},
            "Dynamo skips; compile",
        ),
    ],
)
def test_what_is_said_of_a_call(changes: dict[str, object], said: str) -> None:
    (line,) = not_compiled(report(record(**changes)))
    assert said in line


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"eager_calls": 12}, "was called 300 times and ran eagerly in 12 of them: "),
        (
            {"eager_calls": None, "first_eager_call": 9},
            "and ran eagerly in some of them, from call 9 on: ",
        ),
        ({"eager_calls": None}, "and ran eagerly in some of them: "),
    ],
)
def test_some_calls_ran_eagerly(changes: dict[str, object], said: str) -> None:
    (line,) = not_compiled(report(record(outcome=PARTLY_EAGER, **changes), graphs=True))
    assert line.startswith("ran eagerly: ") and said in line


def test_the_same_call_many_times_is_one_line() -> None:
    """A loop compiles each layer by the same line; calls are those of all."""
    layers = [record(compiled=n, calls=5, path=f"Model.layers.{n}") for n in range(4)]
    (line,) = not_compiled(report(*layers))
    assert "(4 times, first for Model.layers.0) was called 20 times" in line


def test_the_most_calls_come_first_and_the_rest_is_counted() -> None:
    records = [record(compiled=n, line=n, calls=n, eager_calls=n) for n in range(1, 7)]
    lines = not_compiled(report(*records))
    assert [line.partition("train.py:")[2][0] for line in lines[:MAX_LINES]] == ["6", "5", "4"]
    assert lines[MAX_LINES:] == ["3 more: INSTRUMENTED_TABLES=compiled lists them"]
