"""Whose code a file is."""

import json

import pytest
import tabulate
import torch

from instrumented_backend.observe import user_code
from instrumented_backend.observe.user_code import is_installed, is_internal


@pytest.mark.parametrize(
    ("file", "internal", "installed"),
    [
        (torch.__file__, True, True),
        (json.__file__, True, False),
        (user_code.__file__, True, False),
        ("<frozen importlib._bootstrap>", True, False),
        ("<eval_with_key>.7 from /me/model.py:3 in f", True, False),
        ("/me/cache/72/c72mb.py", True, False),
        ("/me/cached.py", False, False),
        (tabulate.__file__, False, True),
        (__file__, False, False),
        ("/home/me/torch/model.py", False, False),
    ],
)
def test_whose(monkeypatch: pytest.MonkeyPatch, file: str, internal: bool, installed: bool) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/me/cache")
    assert is_internal(file) == internal
    if file != user_code.__file__:  # which may be installed as well
        assert is_installed(file) == installed
