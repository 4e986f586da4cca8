"""The library: built once, rebuilt where it is damaged, and missed without harm."""

import ctypes
import pwd
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from instrumented_backend.observe.native import build as native
from instrumented_backend.observe.native import cache, keys, structs


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the part that is built in a second; the op meter takes six."""
    folder = tmp_path_factory.mktemp("built")
    native.load_graph_call(folder)
    return folder


def library(folder: Path) -> Path:
    (path,) = folder.glob("*.so")
    return path


def copy(built: Path, folder: Path) -> Path:
    for path in built.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    return library(folder)


def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("CXX", raising=False)


def test_an_intact_library_is_not_built_again(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy(built, tmp_path)
    no_compiler(monkeypatch)
    assert native.load_graph_call(tmp_path).GraphCall


@pytest.mark.parametrize("damage", ["truncated", "empty", "another file", "no digest"])
def test_a_damaged_library_is_built_again(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    path = copy(built, tmp_path)
    whole = path.read_bytes()
    if damage == "no digest":
        path.with_suffix(".sha256").unlink()
    else:
        wrong = {"truncated": whole[:5000], "empty": b"", "another file": b"x" * len(whole)}
        path.write_bytes(wrong[damage])
    native.load_graph_call(tmp_path)
    assert len(path.read_bytes()) > 5000
    no_compiler(monkeypatch)
    assert native.load_graph_call(tmp_path).GraphCall


class Wider(ctypes.Structure):
    """A struct of another size than the library's."""

    _fields_: ClassVar = [("one", ctypes.c_int64), ("two", ctypes.c_int64), ("far", ctypes.c_char)]


@pytest.mark.parametrize(
    ("struct", "load"),
    [
        *((struct.__name__, native.load) for struct in structs.OF_OP_METER),
        ("GateState", native.load_graph_call),
    ],
)
def test_a_struct_of_another_size(
    monkeypatch: pytest.MonkeyPatch, struct: str, load: Callable[[], Any]
) -> None:
    size = ctypes.sizeof(getattr(structs, struct))
    wider = type(struct, (Wider,), {"_fields_": [("more", ctypes.c_char * size)]})
    monkeypatch.setattr(structs, struct, wider)
    of_op_meter = [getattr(structs, each.__name__) for each in structs.OF_OP_METER]
    monkeypatch.setattr(structs, "OF_OP_METER", of_op_meter)
    message = rf"^{struct} has {size} bytes in \w+-\w+, and {ctypes.sizeof(wider)} in Python$"
    with pytest.raises(native.NativeError, match=message):
        load()


def test_a_struct_that_the_library_does_not_know(op_meter: Any) -> None:
    assert op_meter.op_meter_size(b"Thing") == 0


def test_regions_are_numbered() -> None:
    numbers = [keys.region_key(graph, backward) for graph in range(3) for backward in (0, 1)]
    assert [keys.region_key(None, False), *numbers] == [0, 1, 2, 3, 4, 5, 6]
    assert [keys.is_backward(key) for key in range(5)] == [False, False, True, False, True]


def test_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_compiler(monkeypatch)
    with pytest.raises(native.NativeError, match=r"no C\+\+ compiler found \(g\+\+.*set CXX"):
        native.load(tmp_path)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'file.cpp:1: error: no such thing' >&2; exit 3", "exit code 3: .*no such thing"),
        ("exit 1", "failed with exit code 1: no message"),
    ],
)
def test_a_compiler_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str
) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_text(f"#!/bin/sh\n{script}\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    with pytest.raises(native.NativeError, match=message):
        native.load(tmp_path / "cache")
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".lock"]


def test_a_compiler_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/nonexistent/g++")
    with pytest.raises(native.NativeError, match="cannot be run: there is no such program"):
        native.load(tmp_path)


@pytest.mark.full
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """Built elsewhere, for this process alone. A file in the way stops root, too."""
    (tmp_path / "file").write_text("")
    assert native.load(tmp_path / "file" / "cache").op_meter_size(b"Thing") == 0
    assert (tmp_path / "file").read_text() == ""


@pytest.mark.full
def test_two_processes_at_once(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path;"
        "from instrumented_backend.observe.native import build as native;"
        "print(native.load(Path(sys.argv[1])).op_meter_size(b'Thing'))"
    )
    running = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    assert [process.communicate(timeout=600)[0] for process in running] == ["0\n", "0\n"]
    assert library(tmp_path).stat().st_size > 5000


def test_the_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative one is ignored, and without a home nothing is made in the working folder."""
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert cache.cache_folder() == Path("/cache/instrumented_backend")
    for base in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", base)
        assert cache.cache_folder() == Path("/home/somebody/.cache/instrumented_backend")

    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    with pytest.raises(FileNotFoundError, match="no home folder"):
        cache.cache_folder()


def test_the_key_changes_with_a_header(tmp_path: Path) -> None:
    """A library that was built of other headers is another one."""
    source, header = tmp_path / "part.cpp", tmp_path / "part.h"
    source.write_text('#include "part.h"\n')
    header.write_text("int one;\n")
    part = replace(native._OP_METER, source=source, headers=[header])
    before = part.key
    assert part.key == before
    header.write_text("int two;\n")
    assert part.key != before


def test_all_that_the_op_meter_includes_is_in_its_key() -> None:
    part = native._OP_METER
    included = {
        name
        for file in (part.source, *part.headers)
        for name in re.findall(r'^#include "(.+)"', file.read_text(), re.MULTILINE)
    }
    assert included == {header.name for header in part.headers}
