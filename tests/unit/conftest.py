"""What holds in this folder: nothing is compiled by torch.compile."""

import sys
from collections.abc import Iterator

import pytest


def _frames_compiled() -> int:
    dynamo = sys.modules.get("torch._dynamo.convert_frame")
    return 0 if dynamo is None else dynamo.FRAME_COUNTER


@pytest.fixture(autouse=True)
def nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Child programs run eagerly; a test whose own process compiles fails."""
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")
    before = _frames_compiled()
    yield
    assert _frames_compiled() == before, "this compiles: it belongs into tests/programs"
