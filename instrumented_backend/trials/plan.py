"""What a run is asked for, and what it found: files that the two processes exchange."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec

PLAN = "plan.json"
WHOLE, STEPS = "whole.json", "steps.json"  # reports: of the run, and of its measured steps
Kind = TypeVar("Kind")


@dataclass
class Plan:
    """``unit``, ``warmup`` and ``steps`` are None where the run has to find them itself."""

    change: str | None = None  # None: the program as it is
    unit: str | None = None  # "step of AdamW", "call of Model"
    warmup: int | None = None
    steps: int | None = None
    seconds: float = 2.0  # of steps that are measured where their number is not given
    observe: bool = False  # leave reports


@dataclass
class Ran:
    """What one process of a run found.

    ``seconds`` is the time of ``steps`` steps after ``warmup`` others; without a ``unit`` the
    program has too few steps, and only the run as a whole can be compared.
    """

    pid: int
    rank: int
    marks: int  # of all units
    unit: str | None = None
    warmup: int = 0
    steps: int = 0
    seconds: float = 0.0
    compiled_in_steps: int = 0
    ready_at: float | None = None  # by the system's monotonic clock: when the steps began
    uses_cuda: bool = False
    peak_rss_bytes: int | None = None
    peak_cuda_bytes: int | None = None
    applied: int = 0  # how many places the change was made in
    compile_s: float | None = None  # where it was observed
    notes: list[str] = field(default_factory=list)


@dataclass
class End:
    """The mark of a unit with which all ranks end."""

    unit: str
    mark: int


def write(folder: Path, name: str, content: object) -> None:
    """Whole or not at all."""
    partial = folder / f"{name}.partial"
    partial.write_bytes(msgspec.json.encode(content))
    os.replace(partial, folder / name)


def read(path: Path, kind: type[Kind]) -> Kind:
    """Raises OSError, or ValueError for what is no such file."""
    return msgspec.json.decode(path.read_bytes(), type=kind)
