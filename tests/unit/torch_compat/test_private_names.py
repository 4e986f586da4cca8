"""Private names of torch: in torch_compat alone, listed there, and there in the torch we have."""

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.version import Version
from paths import REPOSITORY

PACKAGE = REPOSITORY / "instrumented_backend"
ROOMS = sorted((PACKAGE / "torch_compat").glob("[!_]*.py"))
OTHERS = sorted(set(PACKAGE.rglob("*.py")) - set((PACKAGE / "torch_compat").glob("*.py")))
# Of the standard library.
OF_PYTHON = {
    *("_args_from_interpreter_flags", "_current_frames", "_exit", "_fields", "_getframe"),
    "_fields_",  # of a structure of ctypes
}


def is_private(part: str) -> bool:
    return re.match("_[^_]", part) is not None


def private_names(tree: ast.Module, in_text: bool = False) -> Iterator[str]:
    """What a module imports of torch, or calls by its full name, with a private part in it."""
    for node in ast.walk(tree):
        found: list[str] = []
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute):
            found = [ast.unparse(node)]
        elif in_text and isinstance(node, ast.Constant):
            found = [str(node.value)]
        for name in found:
            if re.fullmatch(r"torch(\.\w+)+", name) and any(map(is_private, name.split("."))):
                yield name


def private_attributes(tree: ast.Module) -> Iterator[str]:
    """Attributes of others' that begin with an underscore."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            is_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if not is_own and node.attr not in OF_PYTHON:
                yield ast.unparse(node)


def test_the_search_finds_them() -> None:
    source = '''
"""Of ``torch._dynamo``, it says."""
import torch._dynamo.testing, torch.nn
from torch import _guards, nn
from torch.autograd.profiler import _enable_profiler
torch._C.f(torch.__version__, "torch._inductor.config", f"raise torch._dynamo.config.limit")
'''
    named = {
        "torch._C",
        "torch._C.f",
        "torch._dynamo.testing",
        "torch._guards",
        "torch.autograd.profiler._enable_profiler",
    }
    assert set(private_names(ast.parse(source))) == named
    assert set(private_names(ast.parse(source), in_text=True)) == {
        *named,
        "torch._inductor.config",
    }
    source = "self._own = module._is_profiler_enabled; kind._fields; graph.meta"
    assert list(private_attributes(ast.parse(source))) == ["module._is_profiler_enabled"]


@pytest.mark.parametrize("path", OTHERS, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_other_module_names_one(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert [*private_names(tree), *private_attributes(tree)] == []


def listed(path: Path) -> dict[str, str]:
    """A room's names with their versions."""
    room = importlib.import_module(f"instrumented_backend.torch_compat.{path.stem}")
    return {name: versions for versions, names in room.NAMES.items() for name in names}


def code_of(path: Path) -> ast.Module:
    """A room without its list."""
    tree = ast.parse(path.read_text())
    tree.body = [
        statement
        for statement in tree.body
        if not (isinstance(statement, ast.Assign) and ast.unparse(statement.targets) == "NAMES")
    ]
    return tree


WITH_NAMES = [path for path in ROOMS if path.stem != "machine"]


@pytest.mark.parametrize("path", WITH_NAMES, ids=lambda path: path.stem)
def test_a_room_lists_what_it_uses(path: Path) -> None:
    names = [re.sub(r"\(.*", "", name) for name in listed(path)]
    tree = code_of(path)
    for used in private_names(tree, in_text=True):
        assert any(name == used or name.startswith(f"{used}.") for name in names), used
    used_words = set(re.findall(r"\w+", ast.unparse(tree)))
    for name in listed(path):
        last = re.findall(r"\w+", name)[-1]
        assert last in used_words, f"{name} is not used"


def test_a_room_without_a_list_uses_none() -> None:
    (path,) = set(ROOMS) - set(WITH_NAMES)
    tree = ast.parse(path.read_text())
    assert [*private_names(tree, in_text=True), *private_attributes(tree)] == []


def names_in(kind: type) -> set[str]:
    """What a class annotates, and what its methods may set on its objects."""
    names = set(vars(kind).get("__annotations__", ()))
    for method in filter(inspect.isfunction, vars(kind).values()):
        names |= set(method.__code__.co_names)
    return names


def has(name: str) -> bool:
    """Is it in the torch that is installed? ``function(parameter)`` is a name, too."""
    name, _, parameter = name.rstrip(")").partition("(")
    parts = name.split(".")
    found: Any = torch
    for i, part in enumerate(parts[1:], 2):
        if isinstance(found, type) and not hasattr(found, part):
            return any(part in names_in(parent) for parent in found.__mro__)
        if not hasattr(found, part):
            try:
                importlib.import_module(".".join(parts[:i]))
            except ImportError:
                return False
        found = getattr(found, part)
    return not parameter or parameter in inspect.signature(found).parameters


def test_what_is_missing_is_found_missing() -> None:
    assert has("torch._dynamo.disable(recursive)") and has("torch.Tensor._version")
    assert not has("torch._dynamo.disable(something)") and not has("torch._dynamo.something")
    assert not has("torch._guards.CompileContext.something") and not has("torch._something.x")


@pytest.mark.parametrize("path", WITH_NAMES, ids=lambda path: path.stem)
def test_the_installed_torch_has_what_a_room_lists(path: Path) -> None:
    release = Version(Version(torch.__version__).base_version)
    for name, versions in listed(path).items():
        first, _, last = versions.partition(" to ")
        holds = Version(first) <= Version(f"{release.major}.{release.minor}") <= Version(last)
        assert has(name) == holds, f"{name}: {versions}"
