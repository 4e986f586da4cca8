"""How a compilation ended, by metrics that have what Dynamo's have."""

from typing import Any

import pytest
import torch

from instrumented_backend.observe.compile.endings import (
    Failure,
    compiled_function,
    failure_of,
    is_refusal,
    outcome_of,
    raises_at_limit,
)
from instrumented_backend.torch_compat.dynamo import CompilationUnderWay

CODE = (lambda: None).__code__
UNSUPPORTED = {"fail_type": "Unsupported", "fail_reason": "print"}
AT_LIMIT = {"fail_type": "RecompileLimitExceeded", "fail_reason": "Dynamo recompile limit exceeded"}
IN_FULLGRAPH = {"fail_type": "FailOnRecompileLimitHit", "fail_reason": "one line"}


def under_way(raises: bool = False, code: Any = None) -> CompilationUnderWay:
    return CompilationUnderWay(backend=None, code=code, raises=raises)


@pytest.mark.parametrize(
    ("metrics", "raises", "outcome"),
    [
        ({"has_guarded_code": True}, False, "compiled"),
        ({}, False, "skipped"),
        (UNSUPPORTED, False, "skipped"),
        (UNSUPPORTED, True, "failed"),
        ({"fail_type": "SkipFrame"}, False, "skipped"),
        ({"fail_type": "TorchRuntimeError", "fail_reason": "sizes"}, False, "failed"),
    ],
)
def test_outcomes(metrics: dict[str, Any], raises: bool, outcome: str) -> None:
    assert outcome_of(metrics, under_way(raises)) == outcome


def test_what_was_compiled() -> None:
    named = {"co_name": "f", "co_filename": "train.py", "co_firstlineno": 3}
    assert compiled_function(named, under_way(code=CODE)) == ("f", "train.py", 3)
    found = compiled_function({}, under_way(code=CODE))
    assert found == ("<lambda>", __file__, CODE.co_firstlineno)
    assert compiled_function({}, under_way()) == (None, None, None)


def test_the_recompile_limit() -> None:
    assert is_refusal(AT_LIMIT) and not raises_at_limit(AT_LIMIT)
    assert is_refusal(IN_FULLGRAPH) and raises_at_limit(IN_FULLGRAPH)
    assert not is_refusal(UNSUPPORTED) and not is_refusal({})
    message = failure_of(IN_FULLGRAPH, "failed").message
    assert message is not None and message.startswith(AT_LIMIT["fail_reason"])


def test_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    at = {"fail_user_frame_filename": "train.py", "fail_user_frame_lineno": 7}
    monkeypatch.setattr(torch._dynamo.config, "suppress_errors", False)
    expected = Failure("print", ("train.py", 7), refused=False, raises=True)
    assert failure_of({**UNSUPPORTED, **at}, "failed") == expected
    assert not failure_of({**UNSUPPORTED, **at}, "skipped").raises
    monkeypatch.setattr(torch._dynamo.config, "suppress_errors", True)
    assert not failure_of(UNSUPPORTED, "failed").raises
    # A line of torch's own is nobody's to change.
    at["fail_user_frame_filename"] = torch.__file__
    assert failure_of({**UNSUPPORTED, **at}, "failed").at == (None, None)
