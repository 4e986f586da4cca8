"""Twenty regressions: each is found by `check`, and is the first that `diff` names."""

from pathlib import Path

import pytest
from regressions import EDITS, edited, guilty_line

from instrumented_backend.compare.baseline import baseline_of
from instrumented_backend.compare.checking import MISSED, check
from instrumented_backend.compare.compare import compare
from instrumented_backend.compare.limits import Limits
from instrumented_backend.records import Report, read_report

# One process runs many programs, each as if it were alone: what Dynamo and the backend know of the
# one before is forgotten. The caches stay, as they do on a user's machine.
RUNNER = """
import pathlib, runpy, sys
import torch
import instrumented_backend
for folder in map(pathlib.Path, {folders!r}):
    torch._dynamo.reset()
    instrumented_backend.reset()
    torch.set_grad_enabled(True)
    program = runpy.run_path(str(folder / "train.py"))
    program["main"]()
    report = instrumented_backend.report()
    report.run.command = "train.py"
    (folder / "report.json").write_text(report.to_json())
"""
AGAIN = ("again", "a cache key that moves, again")  # after another run, on the same caches


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest):
    forker = request.getfixturevalue("forker")
    base = tmp_path_factory.mktemp("regressions")
    folders = []
    for name in ("", *AGAIN[:1], *EDITS, *AGAIN[1:]):
        source = edited("" if name == "again" else name.removesuffix(", again"))
        folder = base / (name.replace(" ", "_") or "before")
        folder.mkdir()
        (folder / "train.py").write_text(source)
        folders.append(str(folder))
    script = base / "runner.py"
    script.write_text(RUNNER.format(folders=folders))
    import os

    code = forker.run(
        {
            "script": str(script),
            "cwd": str(base),
            "env": {**os.environ, "INSTRUMENTED_TABLES": "none", "INSTRUMENTED_OPS": "always"},
            "stdout": str(base / "out"),
            "stderr": str(base / "err"),
        },
        900,
    )
    assert code == 0, (base / "err").read_text()[-4000:]
    return {Path(folder).name: read_report(Path(folder, "report.json")) for folder in folders}


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
