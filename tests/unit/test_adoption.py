"""What starts with torch's import, and what a failure of ours leaves of it."""

import ast
import logging
import sys
from importlib import metadata
from typing import Any

import pytest
from paths import REPOSITORY

from instrumented_backend import adoption, settings
from instrumented_backend.torch_compat import hooks


def test_one_name_for_the_variable() -> None:
    """In three places: two of them cannot import the third."""
    assert adoption.VARIABLE in {variable.name for variable in settings.VARIABLES}
    autoload = (REPOSITORY / "instrumented_backend_autoload.py").read_text()
    texts = {node.value for node in ast.walk(ast.parse(autoload)) if isinstance(node, ast.Constant)}
    assert adoption.VARIABLE in texts
    source = (REPOSITORY / "instrumented_backend/adoption.py").read_text()
    assert settings.RUN in source
    assert settings.TRIAL in source


def test_the_entry_point_is_one_that_torch_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    asked: list[str] = []

    def entry_points(group: str) -> tuple[Any, ...]:
        asked.append(group)
        return ()

    monkeypatch.setattr(metadata, "entry_points", entry_points)
    torch._import_device_backends()
    assert asked == [hooks.AUTOLOAD_GROUP]


@pytest.mark.parametrize(
    ("environ", "names", "imports"),
    [
        ({}, {"instrumented"}, True),
        ({"TORCH_DEVICE_BACKEND_AUTOLOAD": "1"}, {"other", "instrumented"}, True),
        ({"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}, {"instrumented"}, False),
        ({}, {"other"}, False),
    ],
)
def test_whether_torch_imports_us(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], names: set[str], imports: bool
) -> None:
    points = metadata.EntryPoints(metadata.EntryPoint(name, "x:y", "z") for name in names)
    monkeypatch.setattr(metadata, "entry_points", lambda group: points)
    assert hooks.torch_imports_us(environ) is imports


def test_a_failure_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "instrumented_backend.backend", None)
    monkeypatch.delattr("instrumented_backend.backend", raising=False)
    adoption._backend.cache_clear()
    with caplog.at_level(logging.WARNING):
        assert adoption._backend() is None and adoption._backend() is None
    adoption._backend.cache_clear()
    (record,) = caplog.records
    assert record.getMessage().startswith("instrumented: not observed: ")
