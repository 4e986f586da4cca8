"""Files of the program, some of which change while it runs."""

import hashlib
import linecache
import os
import sys
import types
from pathlib import Path

import pytest

from instrumented_backend.observe.source_files import SourceFiles
from instrumented_backend.records import FileRecord

TEXT, AFTER = "x = 1\n", "x = 1  # edited\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(TEXT)
    os.utime(path, (1e9, 1e9))
    return path


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def record(files: SourceFiles, file: Path) -> tuple[str | None, bool]:
    (found,) = files.records([str(file), None])
    assert found.file == str(file)
    return found.sha256, found.changed


def test_a_file_that_stays(file: Path) -> None:
    files = SourceFiles()
    files.see([str(file)])
    assert record(files, file) == (digest(TEXT), False)


def test_a_file_that_is_edited_while_the_program_runs(file: Path) -> None:
    """Nobody has the text that ran."""
    files = SourceFiles()
    files.see([str(file)])
    file.write_text(AFTER)
    assert record(files, file) == (None, True)
    # It was first seen after the edit: nothing tells.
    assert record(SourceFiles(), file) == (digest(AFTER), False)


def test_text_that_python_kept_from_before(file: Path) -> None:
    files = SourceFiles()
    files.see([str(file)])
    assert linecache.getline(str(file), 1) == TEXT  # as Dynamo does, for its stacks
    file.write_text(AFTER)
    assert record(files, file) == (digest(TEXT), False)
    linecache.checkcache(str(file))  # as a traceback does
    linecache.getline(str(file), 1)
    assert record(files, file) == (None, True)


def test_a_file_that_is_gone(file: Path) -> None:
    files = SourceFiles()
    files.see([str(file)])
    file.unlink()
    assert files.records([str(file)]) == [FileRecord(str(file))]


def test_the_programs_own_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python has read it at the start: a later change is one, however early it is seen."""
    main = types.ModuleType("__main__")
    main.__file__ = str(file)
    monkeypatch.setitem(sys.modules, "__main__", main)
    files = SourceFiles()
    files.see_program()
    assert record(files, file) == (digest(TEXT), False)
    file.write_text(TEXT)  # changed now, when this process has long begun
    linecache.clearcache()
    files = SourceFiles()
    files.see_program()
    assert record(files, file) == (None, True)
    del main.__file__
    files.see_program()  # of "python -c"
