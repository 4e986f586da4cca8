"""The report's file as it is kept current: whole, under one name, in folders that come and go."""

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sample_report import sample

from instrumented_backend.records import read_report
from instrumented_backend.views.files import CurrentFiles


def go_on() -> None:
    pass


class Ended(BaseException):
    pass


@contextmanager
def no_room() -> Iterator[None]:
    """As on a full disk: no file may be longer than this."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.fixture
def files(tmp_path: Path) -> CurrentFiles:
    return CurrentFiles(tmp_path, None)


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def test_what_is_written_is_the_report(files: CurrentFiles, tmp_path: Path) -> None:
    assert files.save(sample(), go_on) == []
    assert names(tmp_path) == ["report.rank0.pid17.json"]
    assert read_report(tmp_path / "report.rank0.pid17.json") == sample()


def test_the_end_of_the_program_leaves_what_was_there(files: CurrentFiles, tmp_path: Path) -> None:
    """At whatever moment it comes."""
    files.save(sample(), go_on)
    later = sample()
    later.summary.graph_calls = 99
    moments = 0
    while True:
        left = moments

        def end() -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Ended

        try:
            files.save(later, end)
        except Ended:
            assert names(tmp_path) == ["report.rank0.pid17.json"]
            assert read_report(tmp_path / "report.rank0.pid17.json") == sample()
            moments += 1
        else:
            break
    assert moments > 20
    assert read_report(tmp_path / "report.rank0.pid17.json") == later


def test_a_full_disk_leaves_what_was_there(files: CurrentFiles, tmp_path: Path) -> None:
    files.save(sample(), go_on)
    with no_room():
        (said,) = files.save(sample(), go_on)
    assert said == f"lost: not kept up to date in {tmp_path}: File too large"
    assert names(tmp_path) == ["report.rank0.pid17.json"]
    assert files.save(sample(), go_on) == []


@pytest.mark.parametrize("call", ["open", "write", "replace"])
@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EMFILE])
def test_whatever_the_system_refuses(
    files: CurrentFiles,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    number: int,
) -> None:
    """At any of its calls, and later no more."""
    files.save(sample(), go_on)

    def refuse(*arguments: object, **options: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(os, call, refuse)
        (said,) = files.save(sample(), go_on)
    assert said == f"lost: not kept up to date in {tmp_path}: {os.strerror(number)}"
    assert names(tmp_path) == ["report.rank0.pid17.json"]
    assert read_report(tmp_path / "report.rank0.pid17.json") == sample()
    assert files.save(sample(), go_on) == []


def test_a_folder_that_is_gone_is_not_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "reports"
    files = CurrentFiles(folder, None)
    (said,) = files.save(sample(), go_on)
    assert said == f"lost: not kept up to date in {folder}: No such file or directory"
    assert not folder.exists()
    folder.mkdir()
    assert files.save(sample(), go_on) == []


def test_the_folder_of_run_is_nobodys_when_it_is_gone(tmp_path: Path) -> None:
    """The process has outlived it."""
    files = CurrentFiles(None, tmp_path / "run")
    assert files.save(sample(), go_on) == []
    assert names(tmp_path) == []


def test_both_folders(tmp_path: Path) -> None:
    folders = tmp_path / "a", tmp_path / "b"
    for folder in folders:
        folder.mkdir()
    CurrentFiles(*folders).save(sample(), go_on)
    assert [names(folder) for folder in folders] == [["report.rank0.pid17.json"]] * 2


def test_the_folder_of_run_is_never_older(tmp_path: Path) -> None:
    """Wherever the program is killed while it writes."""
    folder, run = tmp_path / "a", tmp_path / "run"
    folder.mkdir()
    run.mkdir()

    def calls(where: Path) -> int:
        return read_report(where / "report.rank0.pid17.json").summary.graph_calls

    report, files = sample(), CurrentFiles(folder, run)
    report.summary.graph_calls = 0
    files.save(report, go_on)
    seen = set()

    def check() -> None:
        seen.add((calls(run), calls(folder)))

    report.summary.graph_calls = 1
    files.save(report, check)
    assert seen == {(0, 0), (1, 0)}
    assert (calls(run), calls(folder)) == (1, 1)


def test_another_rank_takes_the_files_place(files: CurrentFiles, tmp_path: Path) -> None:
    report = sample()
    files.save(report, go_on)
    report.run.rank = 3
    files.save(report, go_on)
    assert names(tmp_path) == ["report.rank3.pid17.json"]
    report.run.rank = 4
    files.delivered(report)  # under a name of its own
    assert names(tmp_path) == []


def test_nothing_to_report_after_all(files: CurrentFiles, tmp_path: Path) -> None:
    files.save(sample(), go_on)
    files.discard()
    files.discard()
    assert names(tmp_path) == []


def test_a_forked_child_leaves_the_parents_file(files: CurrentFiles, tmp_path: Path) -> None:
    files.save(sample(), go_on)
    files._pid -= 1  # as in a child
    files.discard()
    report = sample()
    report.run.pid = 18
    files.save(report, go_on)
    assert names(tmp_path) == ["report.rank0.pid17.json", "report.rank0.pid18.json"]


def test_what_a_killed_process_had_begun_is_swept_once(files: CurrentFiles, tmp_path: Path) -> None:
    part = tmp_path / f".report.rank0.pid5.json.{'0' * 32}.part"
    part.touch()
    files.save(sample(), go_on)
    assert names(tmp_path) == ["report.rank0.pid17.json"]


def test_nobody_wants_any() -> None:
    assert not CurrentFiles(None, None)
