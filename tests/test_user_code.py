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
        (tabulate.__file__, False, True),
        (__file__, False, False),
        ("/home/me/torch/model.py", False, False),
    ],
)
def test_whose(file: str, internal: bool, installed: bool) -> None:
    assert is_internal(file) == internal
    if file != user_code.__file__:  # which may be installed as well
        assert is_installed(file) == installed
