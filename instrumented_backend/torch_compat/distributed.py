"""The job that the process is a rank of: its launcher's environment, torch.distributed's own store.

None of it imports torch.distributed: a program that has not done so is no rank of a job.
"""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

# Private names, by the versions of torch that have them.
NAMES = {
    "2.11 to 2.15": (
        "torch._C._distributed_c10d._dump_fr_trace_json",
        "torch.distributed.distributed_c10d._get_default_store",
    ),
}

# What names a run, the same on all its ranks: the scheduler's word for it, then the launcher's.
_SCHEDULERS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "RAY_JOB_ID")
_LAUNCHERS = ("TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE", "SLURM_STEP_ID")
_NO_ID = ("", "none")  # torchrun's, where nobody gave one
_RESTARTS = "TORCHELASTIC_RESTART_COUNT"


@dataclass(frozen=True)
class Group:
    """The default process group."""

    rank: int
    world_size: int


def group() -> Group | None:
    """None while there is none."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return Group(int(distributed.get_rank()), int(distributed.get_world_size()))


def group_of_environment(environ: Mapping[str, str] = os.environ) -> Group | None:
    """As ``torchrun`` and all that set the same variables announce it; None without them."""
    rank, size = environ.get("RANK", ""), environ.get("WORLD_SIZE", "")
    return Group(int(rank), int(size)) if rank.isdecimal() and size.isdecimal() else None


def job_id(environ: Mapping[str, str] = os.environ) -> str | None:
    """``SLURM_JOB_ID=17 TORCHELASTIC_RUN_ID=5a2f``; None where no launcher says anything."""
    known = {
        name: text
        for name in (*_SCHEDULERS, *_LAUNCHERS)
        if (text := environ.get(name, "")) not in _NO_ID
    }
    parts = [f"{name}={known[name]}" for name in _SCHEDULERS if name in known][:1]
    launcher = [f"{name}={known[name]}" for name in _LAUNCHERS if name in known][:1]
    if not launcher and environ.get("MASTER_ADDR") and environ.get("MASTER_PORT"):
        launcher = [f"MASTER_ADDR={environ['MASTER_ADDR']}:{environ['MASTER_PORT']}"]
    return " ".join(parts + launcher) or None


def restarts(environ: Mapping[str, str] = os.environ) -> int | None:
    """How often the launcher has started the ranks again; None where it does not say."""
    text = environ.get(_RESTARTS, "")
    return int(text) if text.isdecimal() else None


def own_store(timeout_s: float) -> Any:
    """A connection of our own to the default group's store; raises RuntimeError (torch's kinds).

    It keeps no server alive: the port of a store that the program closes is free.
    """
    from torch.distributed import distributed_c10d

    store = distributed_c10d._get_default_store().clone()
    store.set_timeout(timedelta(seconds=timeout_s))
    return store


@dataclass(frozen=True)
class Collective:
    group: str
    number: int  # in its group, by which ranks agree on it
    issued_at: float  # seconds since 1970


def collectives() -> list[Collective]:
    """Those that torch's flight recorder still has, in the order in which they were issued.

    It keeps the last 2,000 by default. NCCL has a recorder of its own, which is not read.
    """
    module = sys.modules.get("torch._C._distributed_c10d")
    if module is None:
        return []
    found = [
        Collective(
            str((entry.get("process_group") or [entry.get("pg_id")])[0]),
            int(entry["collective_seq_id"]),
            entry["time_created_ns"] / 1e9,
        )
        for entry in json.loads(module._dump_fr_trace_json()).get("entries", ())
        if not entry.get("is_p2p")
    ]
    return sorted(found, key=lambda one: one.issued_at)
