"""Jobs of two processes, under torchrun: one summary, a report file a rank, and nobody hangs."""

import re
import signal

import pytest
from programs import RunProgram
from ranks import check_whole, run


@pytest.mark.full
def test_two_ranks(run_program: RunProgram) -> None:
    ours = run(run_program, "instrumented")
    check_whole(ours, "cpu")
    theirs = run(run_program, "inductor")
    assert (ours.returncode, ours.stdout) == (theirs.returncode, theirs.stdout)


DEATHS = {
    # What rank 1 does, and who has a report file then.
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
    assert [report["run"]["rank"] for report in done.reports] == reporting
    assert done.stderr.count("instrumented: 1 graph") == 1
    if death == "SIGKILL":
        assert re.search(rf"exitcode\s*: {-signal.SIGKILL}\b", done.stderr)
