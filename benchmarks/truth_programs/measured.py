"""A program's run with our backend, in a process of its own, whose clock starts before torch's."""

import atexit
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from truth_programs.clocks import HostClock, StreamClock

_truth: dict[str, Any] = {}
TRUTH = "truth.json"


def _write() -> None:
    """Registered before all others, and so the last: with the time that the report took."""
    from truth_programs.run import age_s

    if _truth:
        _truth["exit_s"] = age_s()
        Path(os.environ["INSTRUMENTED_DIR"], TRUTH).write_text(json.dumps(_truth, indent=1))


def measured(name: str, device: str, long: bool, few: int | None = None) -> None:
    atexit.register(_write)
    import torch
    from torch._dynamo.utils import calculate_time_spent

    from truth_programs.catalogue import ALL, ON_RANKS
    from truth_programs.run import Run, age_s

    torch.set_num_threads(1)
    clock = _graph_clock(device, name in ON_RANKS)
    run = Run(device, long=long, few=few)
    ALL[name](run)
    if device == "cuda":
        with run.spent("synchronize"):
            torch.cuda.synchronize()
    _truth.update(
        program=name,
        parts=run.parts,
        part_s=run.part_s,
        spent_s=run.spent_s,
        startup_s=run.startup_s,
        compile_s=calculate_time_spent().get("total_wall_time", 0.0),
        wall_s=age_s(),
        clock=type(clock).__name__,
        graphs_s=clock.total_s,
        main_graphs_s=clock.main_s,
        clock_s=clock.own_s,
    )


def _graph_clock(device: str, on_ranks: bool) -> "HostClock | StreamClock":
    from instrumented_backend.observe.graphs.graph import ObservedGraph
    from truth_programs.clocks import HostClock, StreamClock

    clock = StreamClock() if device == "cuda" and on_ranks else HostClock()
    clock.watch(ObservedGraph)
    return clock
