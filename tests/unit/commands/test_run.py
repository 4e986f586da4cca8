"""`run` ends as its command did, whatever becomes of the summary."""

from pathlib import Path

import pytest

from instrumented_backend import settings
from instrumented_backend.commands import child, program, run

EXITED_WITH_3 = 3 << 8


@pytest.mark.parametrize("fails", ["find_reports", "show"])
def test_a_summary_that_fails(
    fails: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(*arguments: object) -> None:
        raise ZeroDivisionError("by us")

    def ends(status: int) -> None:
        monkeypatch.setattr(child, "run", lambda found, environ: status)

    monkeypatch.setenv("INSTRUMENTED_TABLES", "summary")
    monkeypatch.setattr(run, fails, failing)
    found = program.Program("true", ("true",))
    ends(EXITED_WITH_3 if fails == "find_reports" else 0)
    status = run._run(found, settings.load(), "true")
    assert status == (EXITED_WITH_3 if fails == "find_reports" else 0)
    assert "lost: the report: ZeroDivisionError: by us" in capsys.readouterr().err


def test_what_a_command_left_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    folders = []

    def ran(found: program.Program, environ: dict[str, str]) -> int:
        folders.append(Path(environ[settings.RUN]))
        (folders[0] / "report.rank0.pid1.json").write_text("{}")
        return 0

    monkeypatch.setattr(child, "run", ran)
    run._run(program.Program("true", ("true",)), settings.load(), "true")
    assert not folders[0].exists()
