"""What observing takes in memory: growth of the resident set, ours less plain Inductor's.

Each program runs in a process of its own, a backend each in turn; it warms up, and what its
resident set (``/proc/self/statm``) has grown by at the end is compared. Inductor alone takes some
700 KB for each recompilation, and 180 more where the cache is empty: it is filled before.
"""

import gc
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from proof import child
from proof.figures import Cost, cost_of

SNAPSHOTS = "auto with snapshots"
SETTLED_S = 3.0
# The program, its count of ops, calls or graphs, and the same in words.
COUNTS = {
    "eager ops": 10_000_000,
    "graph calls": 1_000_000,
    "recompiles, the code as before": 1_000,
    "recompiles, code of their own": 1_000,
}
RECOMPILES = tuple(what for what in COUNTS if what.startswith("recompiles"))
# The last: as auto, with the report kept current in a folder.
MODES = ("auto", "always", SNAPSHOTS)
MODES_OF_RECOMPILES = ("auto", SNAPSHOTS)


def memory(pairs: int, scale: float = 1.0) -> Iterator[Cost]:
    """Growth over Inductor's: in MB, and for recompilations in KB a graph.

    ``scale`` makes the counts smaller, to try it.
    """
    runs = sum(1 + pairs * (1 + len(_modes(what))) for what in COUNTS)
    with click.progressbar(length=runs, label="memory", file=sys.stderr) as bar:
        for what, full in COUNTS.items():
            modes, count = _modes(what), int(full * scale)
            over: dict[str, list[float]] = {mode: [] for mode in modes}
            if what in RECOMPILES:
                child.call(growth, what, "inductor", count)  # fills the cache
            bar.update(1)
            for _ in range(pairs):
                theirs = child.call(growth, what, "inductor", count)
                bar.update(1)
                for mode in modes:
                    over[mode].append(_instrumented(what, mode, count) - theirs)
                    bar.update(1)
            for mode, values in over.items():
                yield _cost(what, mode, count, values)


def _modes(what: str) -> tuple[str, ...]:
    return MODES_OF_RECOMPILES if what in RECOMPILES else MODES


def _instrumented(what: str, mode: str, count: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        variables = {"INSTRUMENTED_DIR": folder} if mode == SNAPSHOTS else {}
        ops = mode.partition(" ")[0]
        grown: int = child.call(
            growth, what, "instrumented", count, INSTRUMENTED_OPS=ops, **variables
        )
        return grown


def _cost(what: str, mode: str, count: int, over_bytes: list[float]) -> Cost:
    name = f"memory, {count:,} {what}, {mode}"
    if what in RECOMPILES:
        return cost_of(name, [over / 1e3 / count for over in over_bytes], "KB a graph over", 30)
    return cost_of(name, [over / 1e6 for over in over_bytes], "MB over", 5)


def growth(what: str, backend: str, count: int) -> int:
    """Bytes by which the resident set grows over ``count`` ops, calls or recompilations."""
    run = _PROGRAMS[what](backend)
    run(max(count // 100, 10))
    if os.environ.get("INSTRUMENTED_DIR"):
        time.sleep(SETTLED_S)  # what the first snapshots import, and their thread, are no growth
    before = resident()
    run(count)
    return resident() - before


def resident() -> int:
    """Bytes, without what the collector of garbage would give back."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# --- The programs -------------------------------------------------------------------------------

Program = Callable[[int], None]
OPS_A_ROUND = 10_000


def _eager_ops(backend: str) -> Program:
    """Ten ops on ten lines, ten thousand of them after each call of a graph."""
    import torch

    compiled = torch.compile(lambda x: x.sin() * 2, backend=backend)
    x = torch.ones(8)

    def run(count: int) -> None:
        for _ in range(max(count // OPS_A_ROUND, 1)):
            y = compiled(x)
            for _ in range(min(OPS_A_ROUND, count) // 10):
                y.add(1)
                y.mul(2)
                y.sub(1)
                y.div(2)
                y.neg()
                y.abs()
                y.relu()
                y.clone()
                y.square()
                y.sum()

    return run


def _graph_calls(backend: str) -> Program:
    import torch

    compiled = torch.compile(lambda x: x.sin() * 2, backend=backend)
    x = torch.ones(8)

    def run(count: int) -> None:
        for _ in range(count):
            compiled(x)

    return run


def _allow_recompiles() -> None:
    import torch._dynamo

    torch._dynamo.config.recompile_limit = 1_000_000
    torch._dynamo.config.accumulated_recompile_limit = 1_000_000


class _Setting:
    number = 0


def _same_code(backend: str) -> Program:
    """A guard on a number that is not in the code: from the second on, the cache has the graph."""
    import torch

    _allow_recompiles()
    setting = _Setting()
    weight = torch.ones(8, 8, requires_grad=True)

    def function(x: torch.Tensor) -> torch.Tensor:
        return (x @ weight).sin().sum() if setting.number >= 0 else x

    compiled = torch.compile(function, backend=backend, dynamic=False)
    x = torch.ones(8, 8)

    def run(count: int) -> None:
        for _ in range(count):
            setting.number += 1
            compiled(x).backward()

    return run


def _own_code(backend: str) -> Program:
    """A guard on a size that is in the code: each graph has modules of its own.

    Matrix products alone, forward and backward: no C++ kernel has to be compiled, which would take
    seconds for each.
    """
    import torch

    _allow_recompiles()
    weight = torch.ones(8, 8, requires_grad=True)
    compiled = torch.compile(lambda x: x @ weight, backend=backend, dynamic=False)
    size = 16

    def run(count: int) -> None:
        nonlocal size
        for _ in range(count):
            size += 1
            compiled(torch.ones(size, 8)).backward(torch.ones(size, 8))

    return run


_PROGRAMS: dict[str, Callable[[str], Program]] = dict(
    zip(COUNTS, (_eager_ops, _graph_calls, _same_code, _own_code), strict=True)
)
