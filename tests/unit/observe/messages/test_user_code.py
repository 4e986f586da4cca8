"""Whose code a file is."""

import json
import sysconfig
from pathlib import Path

import pytest
import tabulate
import torch

import instrumented_backend
from instrumented_backend.observe.messages.user_code import is_installed, is_internal

PACKAGE = Path(instrumented_backend.__file__).parent
OUR_OWN = (
    *("__init__.py", "__main__.py", "backend.py", "cli.py", "script.py"),
    *("observe/messages/user_code.py", "torch_compat/dynamo.py"),
)


@pytest.mark.parametrize(
    ("file", "internal", "installed"),
    [
        (torch.__file__, True, True),
        # Of the system's Python, and of the user's, beside a virtual environment.
        ("/usr/lib/python3/dist-packages/lightning/pytorch/trainer.py", False, True),
        ("/home/me/.local/lib/python3.12/site-packages/timm/models.py", False, True),
        (f"{sysconfig.get_paths()['stdlib']}/dist-packages/timm/models.py", False, True),
        (json.__file__, True, False),
        *((str(PACKAGE / name), True, False) for name in OUR_OWN),
        (str(PACKAGE / "demo.py"), False, False),
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
    if not file.startswith(str(PACKAGE)):  # which may be installed as well
        assert is_installed(file) == installed
