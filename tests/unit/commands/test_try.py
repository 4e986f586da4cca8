"""The command line of `try`; what it does is in tests/programs/test_try.py."""

import os
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from instrumented_backend.commands import cli, trying
from instrumented_backend.records.trials import TrialRun
from instrumented_backend.trials import changes, runs
from instrumented_backend.trials.course import BaselineError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10m", 600.0), ("90s", 90.0), ("1.5h", 5400.0), ("45", 45.0), (" 2m ", 120.0)],
)
def test_times(text: str, seconds: float) -> None:
    parameter = trying.command.params[0]
    assert trying._duration(click.Context(trying.command), parameter, text) == seconds


@pytest.mark.parametrize("text", ["", "0", "10 m", "-5", "1d", "inf"])
def test_what_is_no_time(text: str) -> None:
    done = CliRunner().invoke(cli, ["try", "--budget", text, "train.py"])
    assert done.exit_code == 2 and "is no time; give 90s, 10m or 1h" in done.output


class Asked:
    """What the command would have run; ``result`` is what it gets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.result = TrialRun("train.py")
        self.error: str | None = None
        monkeypatch.setattr(trying, "_run", self._run)

    def _run(
        self,
        program: runs.Program,
        tried: list[changes.Change],
        words: str,
        steps: int | None,
        budget_s: float,
        limit_s: float,
    ) -> TrialRun:
        if self.error is not None:
            raise BaselineError(self.error)
        self.program, self.changes, self.words = program, tried, words
        self.limits = (steps, budget_s, limit_s)
        return self.result


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Asked:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    (tmp_path / "data").mkdir()
    return Asked(monkeypatch)


def invoke(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, ["try", *arguments])
    return done.exit_code, done.output


def test_the_program_and_its_arguments(asked: Asked, tmp_path: Path) -> None:
    """What follows the program is the program's."""
    invoke("--steps", "9", "--budget", "1m", "train.py", "--epochs", "1", "--steps", "2")
    script = str(tmp_path / "train.py")  # it starts in another folder
    assert asked.program.words[0] == sys.executable
    assert asked.program.words[-5:] == (script, "--epochs", "1", "--steps", "2")
    assert asked.words == "train.py --epochs 1 --steps 2"
    assert asked.limits == (9, 60.0, 300.0)
    assert asked.changes == list(changes.CHANGES)
    assert asked.program.environ["INSTRUMENTED_ADOPT"] == "1"


def test_a_module(asked: Asked, tmp_path: Path) -> None:
    """It is found in the folder where the command was given."""
    invoke("--only", "dynamic", "--only", "eager", "-m", "package.train", "--only", "x")
    assert asked.program.words[-4:] == ("-m", "package.train", "--only", "x")
    assert asked.program.environ["PYTHONPATH"].split(os.pathsep)[-1] == str(tmp_path)
    assert [change.name for change in asked.changes] == ["dynamic", "eager"]


def test_an_option_of_the_program_that_looks_like_ours(asked: Asked) -> None:
    invoke("--format", "json", "train.py", "-m", "small")
    assert asked.program.words[-2:] == ("-m", "small")


@pytest.mark.parametrize("name", ["train.py", str(Path("data", "train.py"))])
def test_a_launcher_and_its_program(asked: Asked, tmp_path: Path, name: str) -> None:
    """Which is found from the folder that the run starts in; what is no program stays."""
    launcher = tmp_path / "launch"
    launcher.write_text("#!/bin/sh\n")
    launcher.chmod(0o755)
    (tmp_path / name).write_text("")
    invoke("./launch", "--procs", "2", name, "--to", "other.py")
    words = (str(launcher), "--procs", "2", str(tmp_path / name), "--to", "other.py")
    assert tuple(asked.program.words) == words
    assert str(tmp_path) not in asked.program.environ.get("PYTHONPATH", "").split(os.pathsep)
    invoke("./launch", "-m", "package.train")
    assert asked.program.environ["PYTHONPATH"].split(os.pathsep)[-1] == str(tmp_path)


def test_what_is_shared(asked: Asked, tmp_path: Path) -> None:
    invoke("--share", "data", "--share", ".", "train.py")
    assert asked.program.shared == [tmp_path / "data", tmp_path]
    code, said = invoke("--share", "..", "train.py")
    assert code == 2 and "not in this folder" in said
    code, said = invoke("--share", "nowhere", "train.py")
    assert code == 2 and "--share nowhere: no such file or folder" in said


def test_a_program_that_fails_as_it_is(asked: Asked) -> None:
    asked.error = "EOFError: EOF when reading a line"
    code, said = invoke("train.py")
    assert code == 1
    assert said.splitlines() == [
        "instrumented-backend: the program as it is: EOFError: EOF when reading a line",
        "each run starts in an empty folder; see --share",
    ]
    assert len(invoke("--share", ".", "train.py")[1].splitlines()) == 1


def test_ctrl_c_shows_what_is_known(asked: Asked) -> None:
    asked.result.interrupted, asked.result.step_s = True, 0.5
    code, said = invoke("train.py")
    assert "no change is known to help so far" in said
    assert code == 1  # click's; `main` makes it 130


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((), 2, "name a PROGRAM to try"),
        (("--only", "wishes", "train.py"), 2, "'wishes' is not one of"),
        (("no-such-program",), 127, "no-such-program: command not found"),
        (("--steps", "2", "train.py"), 2, "2 is not in the range"),
    ],
)
def test_what_cannot_be_tried(
    asked: Asked, arguments: tuple[str, ...], code: int, said: str
) -> None:
    ended, output = invoke(*arguments)
    assert ended == code and said in output


def test_the_help_names_each_change() -> None:
    said = invoke("--help")[1]
    for change in changes.CHANGES:
        assert change.name in said
