"""Runs of programs in processes of their own: none of these has torch."""

import os
import signal
import sys
import textwrap
from pathlib import Path

import pytest
from waiting import wait_until

from instrumented_backend.trials import plan, runs

# What a run leaves, as one with torch does.
LEAVES = """
    import json, os
    ran = {"pid": os.getpid(), "rank": 0, "marks": 0}
    with open(os.environ["INSTRUMENTED_TRIAL"] + f"/ran.{os.getpid()}.json", "w") as file:
        json.dump(ran, file)
"""


class Trying:
    """A program's source, and the folder that it is tried from."""

    def __init__(self, folder: Path) -> None:
        self.here = folder / "here"
        self.own = folder / "own"
        self.here.mkdir()
        self.own.mkdir()

    def run(self, source: str, *shared: str, limit_s: float = 60.0) -> runs.Outcome:
        script = self.here / "train.py"
        script.write_text(textwrap.dedent(source))
        program = runs.Program(
            (sys.executable, str(script)),
            {**os.environ, "INSTRUMENTED_DIR": "/dev/null/x", "MINE": "kept"},
            [self.here / name if name != "." else self.here for name in shared],
            self.here,
        )
        asked = plan.Plan("dynamic", seconds=1.0)
        return runs.run(program, asked, self.own / "caches", self.own, limit_s)


@pytest.fixture
def trying(tmp_path: Path) -> Trying:
    return Trying(tmp_path)


def test_what_a_run_finds(trying: Trying) -> None:
    done = trying.run(LEAVES + '    print("loss 0.5")')
    assert done.error is None and done.ran is not None
    assert done.stdout == "loss 0.5\n"
    assert (done.ran.unit, done.ready_s, done.whole, done.measured) == (None, None, None, None)
    assert list(trying.own.iterdir()) == []  # nothing is left


def test_the_environment(trying: Trying) -> None:
    done = trying.run(
        LEAVES
        + """
    for name in ("MINE", "INSTRUMENTED_DIR", "INSTRUMENTED_ADOPT", "INSTRUMENTED_DISABLE"):
        print(os.environ.get(name))
    print(os.path.basename(os.environ["TORCHINDUCTOR_CACHE_DIR"]))
        """
    )
    assert done.stdout.split() == ["kept", "None", "1", "1", "caches"]


def test_it_starts_in_an_empty_folder(trying: Trying) -> None:
    (trying.here / "checkpoint").write_text("precious")
    done = trying.run(
        LEAVES
        + """
    print(os.listdir())
    with open("checkpoint", "w") as file:
        file.write("of a trial")
        """
    )
    assert done.error is None
    assert done.stdout == "[]\n"
    assert (trying.here / "checkpoint").read_text() == "precious"


def test_what_is_shared(trying: Trying) -> None:
    (trying.here / "data").mkdir()
    (trying.here / "data" / "words").write_text("words")
    (trying.here / "other").write_text("")
    source = LEAVES + '    print(os.listdir(), open("data/words").read())'
    assert trying.run(source, "data").stdout == "['data'] words\n"
    assert trying.run(source, "data/words").stdout == "['data'] words\n"
    everything = trying.run(source, ".").stdout
    assert "other" in everything and everything.endswith(" words\n")
    failed = trying.run(source)
    assert failed.error == "FileNotFoundError: [Errno 2] No such file or directory: 'data/words'"


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("input()", "EOFError: EOF when reading a line"),
        ("raise SystemExit(3)", "ended with exit code 3"),
        ("raise SystemExit('words')", "words"),
        ("import os; os.abort()", "ended by SIGABRT"),
        ("print('no torch')", "torch was not imported in a Python that has this package"),
        (
            "import sys\ntry:\n    [][0]\nfinally:\n    print('bye', file=sys.stderr)",
            "IndexError: list index out of range",
        ),
    ],
)
def test_what_fails_is_told_in_one_line(trying: Trying, source: str, error: str) -> None:
    done = trying.run(source)
    assert (done.error, done.ran) == (error, None)


def test_what_hangs_is_killed_with_all_that_it_started(trying: Trying) -> None:
    done = trying.run(
        """
        import pathlib, subprocess, sys, time
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        print(child.pid, flush=True)
        time.sleep(600)
        """,
        limit_s=3.0,
    )
    assert done.error == "killed after 3 s, the time limit of a run"
    status = Path(f"/proc/{done.stdout.strip()}/status")
    # Gone, or dead and not yet waited for by whoever adopted it.
    wait_until(lambda: not status.exists() or "State:\tZ" in status.read_text())


def test_of_several_processes_it_is_the_one_with_the_steps(trying: Trying) -> None:
    done = trying.run(
        LEAVES
        + """
    for pid, rank, marks in ((1, 1, 70), (2, 0, 70), (3, 0, 4)):
        with open(os.environ["INSTRUMENTED_TRIAL"] + f"/ran.{pid}.json", "w") as file:
            json.dump({"pid": pid, "rank": rank, "marks": marks}, file)
        """
    )
    assert done.ran is not None and done.ran.pid == 2


def test_files_that_are_exchanged(tmp_path: Path) -> None:
    asked = plan.Plan("dynamic", "call of f", 5, 50, 2.0, True)
    plan.write(tmp_path, plan.PLAN, asked)
    assert plan.read(tmp_path / plan.PLAN, plan.Plan) == asked
    (tmp_path / plan.PLAN).write_text('{"steps": "many"}')
    with pytest.raises(ValueError):
        plan.read(tmp_path / plan.PLAN, plan.Plan)


def test_what_is_shared_twice(trying: Trying) -> None:
    """A file in a folder that is shared as a whole: nothing is linked into the folder itself."""
    data = trying.here / "data"
    data.mkdir()
    (data / "x").write_text("kept")
    for shared in (("data", "data/x"), ("data/x", "data")):
        done = trying.run(LEAVES + '    print(open("data/x").read())', *shared)
        assert (done.error, done.stdout) == (None, "kept\n")
    assert [path.name for path in data.iterdir()] == ["x"]


def test_a_signal_that_has_no_name(trying: Trying) -> None:
    done = trying.run("import os, signal; os.kill(os.getpid(), signal.SIGRTMIN + 5)")
    assert done.error == f"ended by signal {signal.SIGRTMIN + 5}"
