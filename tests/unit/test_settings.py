"""The environment variables, and what a bad value says."""

import signal
from pathlib import Path

import pytest
from programs import RunProgram

from instrumented_backend import settings

GOOD_DEFAULTS = {
    "tables": ("summary",),
    "dir": None,
    "html": None,
    "ops": "auto",
    "device_time": False,
    "log": "warning",
    "disable": False,
    "print_missing": False,
    "metric_tables": (),
    "adopt": False,
    "signal": signal.SIGUSR2,
    "run": None,
}


def test_defaults() -> None:
    assert vars(settings.load({})) == GOOD_DEFAULTS
    empty = {variable.name: "" for variable in settings.VARIABLES}
    assert vars(settings.load(empty)) == GOOD_DEFAULTS


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert settings.load({"INSTRUMENTED_DIR": "~/reports"}).dir == tmp_path / "reports"


def test_values(tmp_path: Path) -> None:
    loaded = settings.load(
        {
            "INSTRUMENTED_TABLES": " kernels, graphs ",
            "INSTRUMENTED_DIR": str(tmp_path / "a" / "b"),
            "INSTRUMENTED_OPS": "always",
            "INSTRUMENTED_DEVICE_TIME": "on",
            "INSTRUMENTED_LOG": "info",
            "INSTRUMENTED_DISABLE": "1",
            "INSTRUMENTED_SIGNAL": "USR1",
            "TORCHDYNAMO_PRINT_MISSING": "1",
            "TORCHINDUCTOR_ENABLED_METRIC_TABLES": "graph_stats,kernel_metadata",
        }
    )
    assert loaded.tables == ("graphs", "kernels")  # in our order
    assert loaded.dir == tmp_path / "a" / "b" and loaded.dir.is_dir()
    assert (loaded.ops, loaded.device_time, loaded.log) == ("always", True, "info")
    assert loaded.disable and loaded.print_missing
    assert loaded.signal == signal.SIGUSR1
    assert settings.load({}).signal == signal.SIGUSR2
    assert settings.load({"INSTRUMENTED_SIGNAL": "off"}).signal is None
    assert loaded.metric_tables == ("graph_stats", "kernel_metadata")
    assert settings.load({"INSTRUMENTED_TABLES": "all"}).tables == settings.TABLES
    assert settings.load({"INSTRUMENTED_TABLES": "none"}).tables == ()


@pytest.mark.parametrize(
    ("name", "value", "choices"),
    [
        ("INSTRUMENTED_TABLES", "graphs,nonsense", settings.TABLES),
        ("INSTRUMENTED_TABLES", ",", settings.TABLES),
        ("INSTRUMENTED_TABLES", "all,graphs", settings.TABLES),
        ("INSTRUMENTED_DIR", "/dev/null/folder", ("folder that can be created",)),
        ("INSTRUMENTED_OPS", "sometimes", settings.OPS_MODES),
        ("INSTRUMENTED_DEVICE_TIME", "1", ("off", "on")),
        ("INSTRUMENTED_LOG", "INFO", settings.LOG_LEVELS),
        ("INSTRUMENTED_SIGNAL", "SIGUSR2", settings.SIGNALS),
        ("INSTRUMENTED_DISABLE", "yes", ("0", "1")),
        ("TORCHDYNAMO_PRINT_MISSING", "on", ("0", "1")),
    ],
)
def test_bad_values_name_the_variable_and_the_choices(
    name: str, value: str, choices: tuple[str, ...]
) -> None:
    with pytest.raises(settings.SettingsError) as error:
        settings.load({name: value})
    message = str(error.value)
    assert message.startswith(f"{name}={value!r}: ")
    assert "\n" not in message
    for choice in choices:
        assert choice in message


@pytest.mark.parametrize(
    ("name", "value"),
    [("INSTRUMENTED_TABLES", "nonsense"), ("INSTRUMENTED_DIR", "/dev/null/folder")],
)
def test_a_program_ends_at_once_with_one_line(
    run_forked: RunProgram, name: str, value: str
) -> None:
    done = run_forked(
        """
        import torch
        torch.compile(lambda x: x + 1, backend="instrumented")
        print("not reached")
        """,
        env={name: value},
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1 and done.stderr.startswith(f"{name}={value!r}: ")


def test_a_misspelt_variable_is_named_with_the_right_one() -> None:
    names = {"INSTRUMENTED_TABLE": "all", "INSTRUMENTED_DIR": "/tmp", "INSTRUMENTED_QXZ": "1"}
    assert settings.misspelt(names) == {"INSTRUMENTED_TABLE": "INSTRUMENTED_TABLES"}
    assert settings.misspelt({"TABLES": "all"}) == {}
    # What commands set for the processes that they start.
    assert settings.misspelt({settings.RUN: "/tmp", settings.TRIAL: "/tmp"}) == {}


def test_the_program_is_told(run_program: RunProgram) -> None:
    done = run_program("import instrumented_backend.backend", env={"INSTRUMENTED_TABEL": "all"})
    said = [line for line in done.stderr.splitlines() if "INSTRUMENTED_TABEL" in line]
    assert said == [
        "instrumented: WARNING: INSTRUMENTED_TABEL is not ours; did you mean INSTRUMENTED_TABLES?"
    ]


def test_the_page_is_a_file(tmp_path: Path) -> None:
    page = tmp_path / "made" / "page.html"
    assert settings.load({"INSTRUMENTED_HTML": str(page)}).html == page
    assert page.parent.is_dir() and settings.load({}).html is None
    for value in (str(tmp_path), "/dev/null/page.html"):
        with pytest.raises(settings.SettingsError, match=r"^INSTRUMENTED_HTML=.*page\.html"):
            settings.load({"INSTRUMENTED_HTML": value})
