"""Where libraries are kept: read without a lock, only this user's, and checked as loaded."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

from instrumented_backend.observe.native import cache
from instrumented_backend.observe.native.compiler import NativeError

NAME = "graph_call-0123"


class Cache:
    """Loads what stands for a library: its content."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.remarks: list[str] = []
        self.builds = 0

    def load(
        self,
        content: str = "built",
        meanwhile: Callable[[], object] = lambda: None,
        before_opening: Callable[[], object] = lambda: None,
    ) -> str:
        def build(output: Path) -> None:
            self.builds += 1
            output.write_text(content)
            meanwhile()

        def open_(path: str) -> str:
            before_opening()
            return Path(path).read_text()

        return cache.load(NAME, build, open_, self.folder, self.remarks.append, 0.1)

    @property
    def library(self) -> Path:
        return self.folder / f"{NAME}.so"


@pytest.fixture
def kept(tmp_path: Path) -> Cache:
    """With a library in it."""
    kept = Cache(tmp_path / "cache")
    assert kept.load("kept") == "kept"
    return kept


def no_build(output: Path) -> None:
    raise NativeError("nothing is to be built")


def test_it_is_built_once_and_nobody_else_can_write_it(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        first = Cache(tmp_path / "cache")
        assert [first.load(), first.load("again")] == ["built", "built"]
    finally:
        os.umask(before)
    assert (first.builds, first.remarks) == (1, [])
    assert first.folder.stat().st_mode & 0o777 == 0o700
    names = {path.name: path.stat().st_mode & 0o777 for path in first.folder.iterdir()}
    assert names == {f"{NAME}.{kind}": 0o600 for kind in ("so", "sha256", "lock")}


def test_an_intact_library_is_read_without_the_lock(kept: Cache) -> None:
    with FileLock(kept.folder / f"{NAME}.lock"):
        assert kept.load() == "kept"
    assert kept.remarks == []


def test_a_lock_that_somebody_holds(tmp_path: Path) -> None:
    held = Cache(tmp_path / "cache")
    held.folder.mkdir(mode=0o700)
    with FileLock(held.folder / f"{NAME}.lock"):
        assert held.load() == "built"
    assert held.remarks == [
        "the native part 'graph call' is built for this process alone and not kept: another "
        "process has been building it for 0.1 s"
    ]
    assert [path.suffix for path in held.folder.iterdir()] == [".lock"]


@pytest.mark.parametrize("mode", [0o770, 0o777, 0o1777, 0o702])
def test_a_folder_that_others_can_write(kept: Cache, mode: int) -> None:
    kept.folder.chmod(mode)
    kept.library.write_text("planted")
    assert kept.load() == "built"
    (remark,) = kept.remarks
    assert remark.endswith(f"not kept: {kept.folder} can be written by others (mode {mode:o})")
    assert kept.library.read_text() == "planted"


def test_a_folder_of_another_user(kept: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert kept.load() == "built"
    (remark,) = kept.remarks
    assert remark.endswith(f"not kept: {kept.folder} belongs to another user ({owner})")


def test_a_link_to_ones_own_folder(kept: Cache, tmp_path: Path) -> None:
    link = Cache(tmp_path / "link")
    link.folder.symlink_to(kept.folder)
    assert link.load() == "kept"


@pytest.mark.parametrize("case", ["group", "others", "link", "fifo", "folder's", "digest"])
def test_a_library_that_another_could_have_put_there(
    kept: Cache, tmp_path: Path, case: str
) -> None:
    """It is replaced; a link's target stays as it was."""
    library, target = kept.library, tmp_path / "target"
    target.write_text("kept")
    if case == "digest":
        library.with_suffix(".sha256").chmod(0o666)
    elif case in ("group", "others"):
        library.chmod(0o620 if case == "group" else 0o602)
    else:
        library.unlink()
        if case == "link":
            library.symlink_to(target)
        elif case == "fifo":
            os.mkfifo(library)
        else:
            library.write_text("else")
    assert kept.load() == "built"
    assert kept.remarks == []
    assert not library.is_symlink() and library.read_text() == "built"
    assert library.stat().st_mode & 0o777 == 0o600
    assert target.read_text() == "kept"
    assert [kept.load("again"), kept.builds] == ["built", 2]


def test_what_is_checked_is_what_is_loaded(kept: Cache) -> None:
    """Also where another file gets its name in between."""

    def swap() -> None:
        other = kept.folder / "other"
        other.write_text("planted")
        other.rename(kept.library)

    assert kept.load(before_opening=swap) == "kept"
    assert kept.load() == "built"


def test_the_folder_that_is_checked_is_the_one_that_is_used(kept: Cache) -> None:
    """Also where another gets its name while the library is built."""
    kept.library.unlink()
    moved = kept.folder.with_name("moved")

    def swap() -> None:
        kept.folder.rename(moved)
        kept.folder.mkdir()
        kept.library.write_text("planted")

    assert kept.load(meanwhile=swap) == "built"
    assert (moved / kept.library.name).read_text() == "built"
    assert kept.library.read_text() == "planted"


def test_a_program_that_closes_what_it_does_not_know(kept: Cache, tmp_path: Path) -> None:
    """While the library is built; its own file gets the number, and keeps it."""
    kept.library.unlink()
    taken: list[int] = []

    def close_and_open() -> None:
        mine = os.open(tmp_path / "mine", os.O_RDWR | os.O_CREAT)
        for number in map(int, os.listdir("/proc/self/fd")):
            try:
                target = os.readlink(f"/proc/self/fd/{number}")
            except FileNotFoundError:
                continue  # that of the listing
            if target == str(kept.folder):
                os.dup2(mine, number)
                taken.append(number)
        taken.append(mine)

    assert kept.load(meanwhile=close_and_open) == "built"
    assert len(taken) == 2
    for number in taken:
        os.write(number, b"mine")
        os.close(number)
    (remark,) = kept.remarks
    assert "not kept: " in remark


def test_no_path_is_used_twice(kept: Cache) -> None:
    """The dynamic linker would take the second library for the first."""
    paths: list[str] = []
    for _ in range(3):
        cache.load(NAME, no_build, paths.append, kept.folder, kept.remarks.append, 0.1)
    assert len(set(paths)) == 3


def test_whoever_builds_it_has_the_same_one_as_whoever_comes_next(tmp_path: Path) -> None:
    """Of two files the dynamic linker would make two libraries, each with counters of its own."""
    disk = Cache(tmp_path / "cache")
    inodes: list[int] = []

    def build(output: Path) -> None:
        output.write_text("built")

    def open_(path: str) -> None:
        inodes.append(os.stat(path).st_ino)

    for _ in range(2):
        cache.load(NAME, build, open_, disk.folder, disk.remarks.append, 0.1)
    assert inodes == [disk.library.stat().st_ino] * 2


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(cache, "write_whole", full)
    disk = Cache(tmp_path / "cache")
    assert disk.load() == "built"
    (remark,) = disk.remarks
    assert remark.endswith(f"not kept: {os.strerror(errno.ENOSPC)}")


def test_what_a_killed_process_began_is_removed(kept: Cache) -> None:
    left = kept.folder / f".{kept.library.name}.{'0a' * 16}.part"
    left.touch()
    kept.library.unlink()
    kept.load()
    assert not left.exists()


def test_nothing_stays_where_it_was_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(cache.tempfile, "tempdir", None)
    Cache(tmp_path / "cache").load()
    with pytest.raises(NativeError):
        cache.load("other", no_build, str, tmp_path / "cache", print, 0.1)
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]
