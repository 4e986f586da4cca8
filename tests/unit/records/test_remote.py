"""Folders that are URLs."""

from pathlib import Path

import fsspec
import pytest
from sample_report import sample

from instrumented_backend import settings
from instrumented_backend.records import ReportError, read_report, read_runs
from instrumented_backend.records.remote import RemotePath, path_of
from instrumented_backend.records.whole_file import sweep, write_whole
from instrumented_backend.views.files import write_files


def test_reports_in_memory() -> None:
    folder = settings.load({"INSTRUMENTED_DIR": "memory://runs/one"}).dir
    assert isinstance(folder, RemotePath)
    assert write_files(sample(), folder) == {}
    names = folder.names()
    assert "report.rank0.pid17.json" in names and "graphs.rank0.pid17.csv" in names
    assert read_report(folder / "report.rank0.pid17.json") == sample()
    (run,), errors = read_runs(folder)
    assert [report.run.pid for report in run.reports] == [17] and errors == []


def test_a_file_url_is_a_folder(tmp_path: Path) -> None:
    text = f"file://{tmp_path}/with%20space"
    folder = settings.load({"INSTRUMENTED_DIR": text}).dir
    assert folder == tmp_path / "with space" and folder.is_dir()


def test_a_file_system_with_folders(tmp_path: Path) -> None:
    """Here they have to be made first; ``local`` is no name of pathlib's."""
    folder = path_of(f"local://{tmp_path}/new/er")
    assert isinstance(folder, RemotePath)
    sweep(folder)
    write_whole(folder / "a.txt", "ä")
    assert (tmp_path / "new" / "er" / "a.txt").read_text(encoding="utf-8") == "ä"
    assert (folder / "a.txt").read_bytes(1) == "ä".encode()[:1]
    assert (folder.is_dir(), (folder / "a.txt").is_dir()) == (True, False)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nonsense://x", "Protocol not known: nonsense"),
        ("file://other/folder", "a file on another host"),
    ],
)
def test_what_cannot_be_used_is_said_at_once(text: str, said: str) -> None:
    with pytest.raises(settings.SettingsError, match=said) as raised:
        settings.load({"INSTRUMENTED_DIR": text})
    assert str(raised.value).startswith(f"INSTRUMENTED_DIR={text!r}: ")
    assert "\n" not in str(raised.value)


def test_a_package_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(url: str) -> None:
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec.core, "url_to_fs", missing)
    with pytest.raises(settings.SettingsError, match="Install s3fs to access S3"):
        settings.load({"INSTRUMENTED_DIR": "s3://bucket/run"})


def test_failures_of_a_file_system_are_those_of_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has exceptions of its own; ours are contained where files are written."""
    folder = RemotePath("memory://runs/two")

    def fails(*_: object) -> None:
        raise RuntimeError("AccessDenied:\n no such bucket")

    monkeypatch.setattr(fsspec.implementations.memory.MemoryFileSystem, "pipe_file", fails)
    lost = write_files(sample(), folder)
    assert "report.rank0.pid17.json" in lost
    assert {error.strerror for error in lost.values()} == {
        "RuntimeError: AccessDenied: no such bucket"
    }


def test_a_folder_that_is_not_there() -> None:
    with pytest.raises(ReportError, match="memory://nowhere: cannot be read"):
        read_runs(RemotePath("memory://nowhere"))
    with pytest.raises(ReportError, match=r"memory://nowhere/x\.json: cannot be read"):
        read_report(RemotePath("memory://nowhere/x.json"))
