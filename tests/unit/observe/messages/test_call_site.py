"""Where the program called something, and the call as it stands there."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from instrumented_backend.observe.messages import call_site as module
from instrumented_backend.observe.messages.call_site import MAX_ARGUMENT, CallSite, call_site


def asked(*_: object, **__: object) -> CallSite | None:
    return call_site(sys._getframe(1))


class Torch:
    """With the names that a program knows, which say where they are called."""

    def compile(self, *arguments: object, **keywords: object) -> CallSite | None:
        return asked()


def program(tmp_path: Path, source: str, name: str = "train.py", **names: object) -> ModuleType:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    vars(found).update(names)
    spec.loader.exec_module(found)
    return found


@pytest.fixture(autouse=True)
def tests_are_the_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the program's: this module is between it and what is asked."""
    theirs = module.is_internal
    monkeypatch.setattr(module, "is_internal", lambda file: file == __file__ or theirs(file))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("torch.compile(model)", "torch.compile(model)"),
        ("torch.compile(model, backend='instrumented')", "torch.compile(model)"),
        ("model.compile(backend='instrumented')", "model.compile()"),
        (
            "torch.compile(\n    model,  # a remark with )\n    dynamic=True,\n)",
            "torch.compile(model)",
        ),
        ("torch.compile(lambda x: x + 1)", "torch.compile(lambda x: x + 1)"),
        ("[torch.compile(model) for _ in range(1)][0]", "torch.compile(model)"),
        ("('ä', torch.compile(model))[1]", "torch.compile(model)"),  # columns are of bytes
        (f"torch.compile({'m' * 50})", f"torch.compile({'m' * (MAX_ARGUMENT - 3)}...)"),
    ],
)
def test_the_call_as_it_stands_there(tmp_path: Path, call: str, said: str) -> None:
    source = f"\nsite = (\n{call}\n)\n"
    found = program(tmp_path, source, torch=Torch(), model=Torch(), **{"m" * 50: None}).site
    assert found.text() == said
    assert found.receiver() == ("torch" if "torch.compile" in call else "model")
    assert Path(found.file).name == "train.py"
    assert source.splitlines()[found.line - 1].strip() in call


@pytest.mark.parametrize(
    ("decorator", "said"),
    [
        ("@torch.compile", "@torch.compile"),
        ("@torch.compile(dynamic=True)", "@torch.compile"),
        ("@functools.partial(torch.compile, dynamic=True)", None),
    ],
)
def test_decorators(tmp_path: Path, decorator: str, said: str | None) -> None:
    """What is a call of a call is told as it stands, on the decorator's line."""

    class Decorating(Torch):
        def compile(self, function: object = None, **keywords: object) -> object:
            if function is None:
                return lambda function: call_site(sys._getframe(1))
            return call_site(sys._getframe(1))

    source = f"import functools\n\n{decorator}\ndef site(x):\n    return x\n"
    found = program(tmp_path, source, torch=Decorating()).site
    assert found.line == 3
    if said is not None:
        assert found.text() == said


def test_source_that_is_gone_or_changed(tmp_path: Path) -> None:
    found = program(tmp_path, "site = torch.compile(model)", torch=Torch(), model=1).site
    beyond = CallSite(found.file, 9, 9, 0, 3)
    inside = CallSite(found.file, 1, 1, 0, 6)
    unknown = CallSite(found.file, 1, None, None, None)
    no_file = CallSite(str(tmp_path / "none.py"), 1, 1, 0, 4)
    assert [site.text() for site in (beyond, inside, unknown, no_file)] == [None] * 4


def test_the_users_line_and_not_the_librarys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trainer of an installed package compiles for the program that called the trainer."""
    packages = tmp_path / "packages"
    monkeypatch.setattr(module, "is_installed", lambda file: file.startswith(str(packages)))
    trainer = program(
        packages, "def train():\n    return torch.compile(1)", "trainer.py", torch=Torch()
    )
    user = program(tmp_path, "\n\nsite = trainer.train()", trainer=trainer).site
    assert (Path(user.file).name, user.line) == ("train.py", 3)
    # Python's own json is nobody's; with no user at all, the package's line is what there is.
    hook = program(
        packages,
        "import json\nsite = json.loads('{}', object_hook=lambda _: torch.compile(1))",
        "alone.py",
        torch=Torch(),
    )
    assert (Path(hook.site.file).name, hook.site.line) == ("alone.py", 2)
    assert json.__file__ != hook.site.file


def test_nobody_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "is_internal", lambda file: True)
    assert asked() is None
    assert call_site(None) is None
