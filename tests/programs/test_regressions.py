"""Twenty regressions: each is found by `check`, and is the first that `diff` names."""

import os
import shutil
from pathlib import Path

import pytest
from programs import NO_GPU, Forker
from regressions import EDITS, edited, guilty_line

from instrumented_backend.compare.baseline import baseline_of
from instrumented_backend.compare.checking import MISSED, check
from instrumented_backend.compare.compare import compare
from instrumented_backend.compare.limits import Limits
from instrumented_backend.records import Report, find_reports, read_report

AGAIN = ("again", "a cache key that moves, again")  # after another run, on the same caches


@pytest.fixture(scope="module")
def reports(
    tmp_path_factory: pytest.TempPathFactory, forker: Forker, isa_checks: Path
) -> dict[str, Report]:
    """Each program in a process of its own, with no variable set but where reports and caches are.

    The caches are one for all, as they are on a user's machine.
    """
    base = tmp_path_factory.mktemp("regressions")
    cache = shutil.copytree(isa_checks, base / "cache")
    environ = {k: v for k, v in os.environ.items() if not k.startswith("INSTRUMENTED_")}
    found = {}
    for name in ("", *AGAIN[:1], *EDITS, *AGAIN[1:]):
        folder = base / (name.replace(" ", "_") or "before")
        folder.mkdir()
        source = edited("" if name == "again" else name.removesuffix(", again"))
        (folder / "train.py").write_text(f"{source}\n\nmain()\n")
        request = {
            "script": str(folder / "train.py"),
            "cwd": str(folder),
            "env": {
                **environ,
                **NO_GPU,
                "INSTRUMENTED_DIR": str(folder),
                "TORCHINDUCTOR_CACHE_DIR": str(cache),
            },
            "stdout": str(folder / "out"),
            "stderr": str(folder / "err"),
        }
        assert forker.run(request, 300) == 0, (folder / "err").read_text()[-4000:]
        (path,) = find_reports(folder)
        found[folder.name] = read_report(path)
    return found


@pytest.mark.full
@pytest.mark.parametrize("name", EDITS)
def test_a_regression(name: str, reports: dict[str, Report]) -> None:
    before = reports["again"]  # with warm caches
    moves = name == "a cache key that moves"
    after = reports[(f"{name}, again" if moves else name).replace(" ", "_")]
    first = compare(before, after).changes[0]
    assert (first.line, first.worse) == (guilty_line(name), True), first
    limits = Limits(absolute={"cache_misses": 0}) if moves else Limits()
    baseline = baseline_of([before]).ranks["0"]
    missed = [one for one in check(after, limits, baseline) if one.status == MISSED]
    assert missed
    assert guilty_line(name) in {item.line for item in missed[0].guilty}, missed[0]


@pytest.mark.full
def test_no_regression(reports: dict[str, Report]) -> None:
    """The program as it was, cold and then warm."""
    cold, warm = reports["before"], reports["again"]
    assert compare(cold, warm).changes == compare(warm, cold).changes == []
    for one, other in ((cold, warm), (warm, cold)):
        found = check(other, Limits(), baseline_of([one]).ranks["0"])
        assert [finding.figure for finding in found if finding.status != "kept"] == []
