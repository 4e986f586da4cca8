"""The environment variables, each declared once: name, default, meaning, and how it is read."""

import functools
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from instrumented_backend.records.remote import MARK, AnyPath, path_of
from instrumented_backend.torch_compat import inductor_metrics

PREFIX = "INSTRUMENTED_"
# Set by `run` for the processes that it starts, and by nobody else: where it collects reports.
RUN = "INSTRUMENTED_RUN"
# Set by `try`, likewise: the folder with the plan of a run.
TRIAL = "INSTRUMENTED_TRIAL"
TABLES = (
    "summary",
    "ledger",
    "gpu",
    "next",
    "compiled",
    "graphs",
    "breaks",
    "recompiles",
    "missing",
    "lines",
    "kernels",
    "counters",
    "caches",
    "compile",
)
OPS_MODES = ("auto", "always", "off")
SIGNALS = ("USR1", "USR2", "off")
LOG_LEVELS = ("debug", "info", "warning", "error")
# Inductor's own; a program may register more.
METRIC_TABLES = (
    "slow_fusion",
    "graph_stats",
    "persistent_red_perf",
    "fusion_failure_due_to_indexing_mismatch",
    "kernel_metadata",
    "kernel_autotune",
)


class SettingsError(SystemExit, ValueError):
    """A variable holds a value that we cannot use; the message is one line.

    It is an ordinary ``ValueError`` to code that catches it. Where nobody does, the program ends
    with that line and exit code 1, without a traceback: the mistake is in the environment, not in
    the code that the traceback would show.
    """


@dataclass(frozen=True)
class Variable:
    """One environment variable; ``read`` turns its text into the value, or raises ValueError."""

    name: str
    field: str
    default: str
    meaning: str
    read: Callable[[str], Any]


@dataclass(frozen=True)
class Settings:
    """What the environment asks for; see `VARIABLES` for each field's meaning."""

    tables: tuple[str, ...]
    dir: AnyPath | None
    html: Path | None
    ops: str
    device_time: bool
    log: str
    disable: bool
    print_missing: bool
    metric_tables: tuple[str, ...]
    adopt: bool
    signal: int | None
    run: Path | None


def _choice(*choices: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in choices:
            raise ValueError(f"choose one of {', '.join(choices)}")
        return text

    return read


def _flag(off: str, on: str) -> Callable[[str], bool]:
    choice = _choice(off, on)
    return lambda text: choice(text) == on


def _signal(text: str) -> int | None:
    name = _choice(*SIGNALS)(text)
    return None if name == "off" else int(signal.Signals[f"SIG{name}"])


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in (part.strip() for part in text.split(",")) if name)


def read_tables(text: str) -> tuple[str, ...]:
    """``"graphs,breaks"`` → the names in our order; ``all`` and ``none`` stand alone."""
    names = _names(text)
    if names == ("all",):
        return TABLES
    if names == ("none",):
        return ()
    unknown = [name for name in names if name not in TABLES]
    if unknown or not names:
        what = f"unknown table {unknown[0]!r}" if unknown else "no table named"
        raise ValueError(f"{what}; choose from {', '.join(TABLES)}, or all, or none")
    return tuple(name for name in TABLES if name in names)


def read_metric_tables(text: str) -> tuple[str, ...]:
    """``"graph_stats,kernel_metadata"`` → the names; each is Inductor's or registered by now."""
    names = _names(text)
    choices = tuple(dict.fromkeys((*METRIC_TABLES, *inductor_metrics.registered_tables())))
    for name in names:
        if name not in choices:
            raise ValueError(f"unknown metric table {name!r}; choose from {', '.join(choices)}")
    return names


def _folder(text: str) -> AnyPath | None:
    if not text:
        return None
    found = path_of(text if MARK in text else os.path.expanduser(text))
    if not isinstance(found, Path):
        return found
    try:
        # Made absolute now: the program may change its working folder before the files are written.
        folder = found.absolute()
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"cannot make this folder: {error.strerror}; {_WANT_FOLDER}") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ValueError(f"cannot write to this folder; {_WANT_FOLDER}")
    return folder


def _page(text: str) -> Path | None:
    """A file in a folder that is made where there is none."""
    if not text:
        return None
    try:
        path = Path(os.path.expanduser(text)).absolute()
        if path.is_dir():
            raise ValueError(f"this is a folder; {_WANT_PAGE}")
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"cannot make its folder: {error.strerror}; {_WANT_PAGE}") from None
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise ValueError(f"cannot write to its folder; {_WANT_PAGE}")
    return path


_WANT_PAGE = "name a file that can be written, such as page.html"
_WANT_FOLDER = "name a folder that can be created and written"

VARIABLES = (
    Variable(
        "INSTRUMENTED_TABLES",
        "tables",
        "summary",
        f"tables printed at exit, a comma list of {', '.join(TABLES)}; or all, or none",
        read_tables,
    ),
    Variable(
        "INSTRUMENTED_DIR",
        "dir",
        "",
        "folder, or fsspec URL, for report.rank<R>.pid<P>.json and a CSV file for each table",
        _folder,
    ),
    Variable(
        "INSTRUMENTED_HTML",
        "html",
        "",
        "file for the report as a page, with your own source in it",
        _page,
    ),
    Variable(
        "INSTRUMENTED_OPS",
        "ops",
        "auto",
        "how eager ops are observed: auto (inside the overhead budget), always (exact), off",
        _choice(*OPS_MODES),
    ),
    Variable(
        "INSTRUMENTED_DEVICE_TIME",
        "device_time",
        "off",
        "on: the time of each kernel in the run itself; on CPU, of the C++ kernels",
        _flag("off", "on"),
    ),
    Variable(
        "INSTRUMENTED_LOG",
        "log",
        "warning",
        "level of the instrumented_backend logger: debug, info, warning, error",
        _choice(*LOG_LEVELS),
    ),
    Variable(
        "INSTRUMENTED_DISABLE",
        "disable",
        "0",
        "1: the backend is Inductor and nothing else",
        _flag("0", "1"),
    ),
    Variable(
        "TORCHDYNAMO_PRINT_MISSING",
        "print_missing",
        "0",
        "as in PyTorch: 1 prints each op that was not captured, with its line, once",
        _flag("0", "1"),
    ),
    Variable(
        "TORCHINDUCTOR_ENABLED_METRIC_TABLES",
        "metric_tables",
        "",
        "as in PyTorch: metric tables to write as metric_table_<name>.csv, a comma list of "
        + ", ".join(METRIC_TABLES),
        read_metric_tables,
    ),
    Variable(
        "INSTRUMENTED_ADOPT",
        "adopt",
        "0",
        "1: every torch.compile of Inductor, here and in child processes, goes through this one",
        _flag("0", "1"),
    ),
    Variable(
        "INSTRUMENTED_SIGNAL",
        "signal",
        "USR2",
        "signal that prints the summary of a running program, unless it handles it: USR1, USR2,"
        " off",
        _signal,
    ),
)


def load(environ: Mapping[str, str] = os.environ) -> Settings:
    """Read every variable; raises `SettingsError` naming the variable, its value, the choices."""
    values = {}
    for variable in VARIABLES:
        text = environ.get(variable.name, "").strip() or variable.default
        try:
            values[variable.field] = variable.read(text)
        except ValueError as error:
            raise SettingsError(f"{variable.name}={text!r}: {error}") from None
    folder = environ.get(RUN)
    return Settings(**values, run=Path(folder) if folder else None)


def misspelt(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What looks like one of ours: ``{"INSTRUMENTED_TABLE": "INSTRUMENTED_TABLES"}``."""
    ours = {v.name.removeprefix(PREFIX) for v in VARIABLES if v.name.startswith(PREFIX)}
    ours |= {RUN.removeprefix(PREFIX), TRIAL.removeprefix(PREFIX)}
    set_ = {name.removeprefix(PREFIX) for name in environ if name.startswith(PREFIX)}
    if set_ <= ours:
        return {}
    import difflib

    closest = {name: difflib.get_close_matches(name, ours, n=1) for name in sorted(set_ - ours)}
    return {PREFIX + name: PREFIX + found[0] for name, found in closest.items() if found}


@functools.cache
def of_process() -> Settings:
    """The process's own settings, read once: a relative folder is where it was at that time."""
    return load()
