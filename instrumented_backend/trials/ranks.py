"""Ranks of a job end with the same step: one that ended alone would leave the others waiting.

A run that finds its steps by time is ended by rank 0, which names the mark with which all end: its
next one. Ranks that exchange gradients are no further by then; others end as they read it.
"""

from pathlib import Path
from typing import Any

from instrumented_backend.trials import plan
from instrumented_backend.trials.steps import Unit

END = "end.json"


class Ends:
    """When a run of this process ends, with regard to the other ranks of its job, if any."""

    def __init__(self, torch: Any, folder: Path) -> None:
        self._torch = torch
        self._path = folder / END
        self._told: plan.End | None = None

    def ready(self, unit: Unit) -> bool:
        """Enough has been measured: may the run end with this mark?"""
        rank = rank_of(self._torch)
        if rank == 0 and self._told is None:
            self._told = plan.End(unit.name, unit.marks + 1)
            plan.write(self._path.parent, END, self._told)
        return rank is None

    def now(self, unit: Unit) -> bool:
        """Does the run end with this mark because rank 0 says so?"""
        if self._told is None and rank_of(self._torch) and self._path.exists():
            self._told = plan.read(self._path, plan.End)
        told = self._told
        return told is not None and unit.name == told.unit and unit.marks >= told.mark


def rank_of(torch: Any) -> int | None:
    """None where there are no others."""
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized():
        return None
    return int(distributed.get_rank()) if distributed.get_world_size() > 1 else None
