"""What is known of the process without torch's help."""

import pytest

from instrumented_backend.torch_compat import machine


def test_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    assert machine.rank() == 0
    monkeypatch.setenv("RANK", "3")
    assert machine.rank() == 3
    monkeypatch.setenv("RANK", "²")
    assert machine.rank() == 0
