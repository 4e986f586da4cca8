"""Limits: what a program may come to, out of ``[tool.instrumented-backend.check]``."""

import difflib
import math
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from instrumented_backend.compare.figures import FIGURES
from instrumented_backend.records import bounded

TABLE = "[tool.instrumented-backend.check]"
MAX_BYTES = 1 << 24
_LONGEST_NAME = max(map(len, FIGURES))
_PERCENT = re.compile(r"(\d+(?:\.\d+)?) *%")


class CheckError(ValueError):
    """What was asked for cannot be checked; the message is one line."""


@dataclass(frozen=True)
class Slack:
    """How much worse than the baseline a figure may be: so much, or such a share of it."""

    amount: float = 0.0
    share: float = 0.0

    def of(self, value: float) -> float:
        return max(self.amount, self.share * abs(value))


@dataclass
class Limits:
    """``absolute`` are by figure, ``functions`` by function and figure; both in its own unit.

    ``allowed`` names figures that are compared with the baseline, beside those that always are.
    """

    absolute: dict[str, float] = field(default_factory=dict)
    functions: dict[str, dict[str, float]] = field(default_factory=dict)
    allowed: dict[str, Slack] = field(default_factory=dict)
    baseline: Path | None = None
    where: str = "the command line"  # what they were read from
    given: set[str] = field(default_factory=set)  # those of the command line, whatever the file has

    def is_empty(self) -> bool:
        return not (self.absolute or self.functions or self.baseline)


def read_limits(path: Path) -> Limits | None:
    """Those in a TOML file: in the table of a pyproject.toml, or at the top of any other.

    None where a pyproject.toml has no such table. Raises `CheckError`.
    """
    try:
        data = tomllib.loads(bounded.read_text(path, MAX_BYTES))
    except OSError as error:
        raise CheckError(f"{path}: cannot be read: {error.strerror}") from None
    except RecursionError:
        raise CheckError(f"{path}: not TOML that can be read: it is nested too deeply") from None
    except ValueError as error:  # also of a number with thousands of digits
        raise CheckError(f"{path}: not TOML: {error}") from None
    tool = data.get("tool")
    ours = tool.get("instrumented-backend") if isinstance(tool, dict) else None
    table = ours.get("check") if isinstance(ours, dict) else None
    where = f"{path}, {TABLE}"
    if table is None:
        if path.name == "pyproject.toml" or tool is not None:
            return None
        table, where = data, str(path)
    if not isinstance(table, dict):
        raise CheckError(f"{where}: not a table, but {_told(table)}")
    return _limits(table, where, path.parent)


def nearest_pyproject(folder: Path) -> Path | None:
    """From a folder up."""
    for parent in (folder, *folder.parents):
        if (parent / "pyproject.toml").is_file():
            return parent / "pyproject.toml"
    return None


def read_limit(text: str) -> tuple[str, float]:
    """``"graph_breaks=0"``; raises `CheckError`."""
    name, separator, value = text.partition("=")
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not separator or not math.isfinite(number):
        raise CheckError(f"{text!r} is no limit; write it as graph_breaks=0")
    _check_name(name.strip(), FIGURES, "")
    return name.strip(), number


def check_limit(name: str, value: Any, where: str) -> float:
    """One that was given in Python; raises `CheckError`."""
    _check_name(name, FIGURES, f"{where}: ")
    return _number(name, value, where)


def _limits(table: dict[str, Any], where: str, folder: Path) -> Limits:
    limits = Limits(where=where)
    for name, value in table.items():
        if name == "baseline":
            if not isinstance(value, str) or not value:
                raise CheckError(f"{where}: baseline = {_told(value)}: give the path of a file")
            limits.baseline = folder / value
        elif name == "functions":
            for function, figures in _table(value, f"{where}: functions").items():
                place = f"{where}: functions.{function!r}"
                by_function = [one.name for one in FIGURES.values() if one.by_function]
                limits.functions[function] = {
                    figure: _number(figure, number, place)
                    for figure, number in _table(figures, place).items()
                    if _check_name(figure, by_function, f"{place}: ")
                }
        elif name == "allow":
            for figure, slack in _table(value, f"{where}: allow").items():
                _check_name(figure, FIGURES, f"{where}: allow: ")
                limits.allowed[figure] = _slack(figure, slack, f"{where}: allow")
        else:
            _check_name(name, (*FIGURES, "baseline", "functions", "allow"), f"{where}: ")
            limits.absolute[name] = _number(name, value, where)
    return limits


def _table(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise CheckError(f"{where}: not a table, but {_told(value)}")
    return value


def _number(name: str, value: Any, where: str) -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= bounded.LARGEST:
        raise CheckError(f"{where}: {name} = {_told(value)}: give a number from 0 on")
    return float(value)


def _slack(name: str, value: Any, where: str) -> Slack:
    if isinstance(value, str) and (match := _PERCENT.fullmatch(value.strip())):
        return Slack(share=float(match[1]) / 100)
    if isinstance(value, str):
        raise CheckError(f'{where}: {name} = {_told(value)}: give a number, or a share as in "5 %"')
    return Slack(amount=_number(name, value, where))


def _told(value: Any) -> str:
    """A wrong value: TOML nests as deep, and has numbers as long, as Python cannot print."""
    try:
        return repr(value)
    except (RecursionError, ValueError):
        return "more than can be shown"


def _check_name(name: str, choices: Any, where: str) -> bool:
    if name not in choices:
        close = difflib.get_close_matches(name[:_LONGEST_NAME], choices, n=1)
        meant = f"; did you mean {close[0]}?" if close else ""
        raise CheckError(f"{where}no limit {name!r}{meant} Choose from {', '.join(choices)}")
    return True
