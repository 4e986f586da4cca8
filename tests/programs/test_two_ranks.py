"""Jobs of two processes, under torchrun: one summary, a report file a rank, and nobody hangs."""

import re
import signal
import subprocess
from pathlib import Path

import pytest
from programs import TOOL, RunProgram
from ranks import check_whole, run, run_recompiling


@pytest.mark.full
def test_two_ranks(run_program: RunProgram) -> None:
    ours = run(run_program, "instrumented")
    check_whole(ours, "cpu")
    theirs = run(run_program, "inductor")
    assert (ours.returncode, ours.stdout) == (theirs.returncode, theirs.stdout)


DEATHS = {
    # What rank 1 does, and whose last report is written then.
    "an exception": ("raise ValueError('rank 1')", [0, 1]),
    "os._exit": ("os._exit(5)", [0]),
    "SIGKILL": ("os.kill(os.getpid(), signal.SIGKILL)", [0]),
}


@pytest.mark.full
@pytest.mark.parametrize(
    "death",
    ["SIGKILL", *(pytest.param(name, marks=pytest.mark.full) for name in list(DEATHS)[:2])],
)
def test_one_rank_dies(run_program: RunProgram, death: str) -> None:
    """Rank 0 is left in a collective: it fails there, or torchrun ends it, and the job with 1."""
    trouble, reporting = DEATHS[death]
    done = run(run_program, "instrumented", f"if rank == 1: {trouble}")
    assert done.returncode == 1
    assert done.stdout == ""
    ended = [report for report in done.reports if report["run"]["status"] != "running"]
    assert [report["run"]["rank"] for report in ended] == reporting
    assert done.stderr.count("instrumented: 1 graph") == 1
    if death == "SIGKILL":
        assert re.search(rf"exitcode\s*: {-signal.SIGKILL}\b", done.stderr)


# --- Read together ------------------------------------------------------------------------------

DIVERGED = "ranks first differ: rank 1 recompiled step (program0.py:9) in call 20, rank 0 did not;"
GUARD = "guard: size of x in dimension 0: 4 → 5;"


def in_words(text: str) -> str:
    return " ".join(re.sub(r"\([^ ]*/(program\d+\.py:\d+)\)", r"(\1)", text).split())


def show(folder: Path) -> str:
    done = subprocess.run([*TOOL, "show", str(folder)], capture_output=True, text=True, check=True)
    return in_words(done.stdout)


@pytest.mark.full
def test_a_recompile_on_one_rank_is_the_first_divergence(
    run_program: RunProgram, tmp_path: Path
) -> None:
    """With no folder for the reports, rank 0 gathers them: what it prints is the same."""
    done = run_recompiling(run_program)
    assert done.returncode == 0
    assert [report["run"]["world_size"] for report in done.reports] == [2, 2]
    (job,) = {report["run"]["job"] for report in done.reports}
    assert job.startswith("TORCHELASTIC_RUN_ID=")
    calls = [[one["call"] for one in report["compile"]["compilations"]] for report in done.reports]
    assert calls == [[1], [1, 20]]
    told = show(tmp_path / "reports0")
    assert f"instrumented: 2 ranks of {job}" in told
    assert f"{DIVERGED} {GUARD}" in told and "in a collective at most" in told

    gathered = run_recompiling(run_program, INSTRUMENTED_DIR=None)
    assert gathered.returncode == 0 and gathered.reports == []
    said = in_words(gathered.stderr)
    assert f"{DIVERGED.replace('program0', 'program1')} {GUARD}" in said
    assert said.count("instrumented: 1 graph") == 1


@pytest.mark.full
def test_a_killed_rank_is_named_as_missing(run_program: RunProgram, tmp_path: Path) -> None:
    done = run_recompiling(
        run_program, "if rank == 1: os.kill(os.getpid(), signal.SIGKILL)", INSTRUMENTED_DIR=None
    )
    assert done.returncode == 1
    assert "missing: rank 1 of 2 left no report" in in_words(done.stderr)
