"""The operator benchmark's timing: against known times, and on CUDA against ``do_bench``."""

import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from proof import child
from proof.figures import Figure, nearest

SLEEPS_MS = (1, 4, 800)
ROUNDS = 5  # of both, in turns: the clock of a GPU wanders
SHAPE = "[256, 1024, 1024]"
# Large enough that launching hides without CUDA graphs, so that `do_bench` alone will do.
OPERATORS = {
    "_softmax.default": ", -1, False",
    "add.Tensor": f", T({SHAPE}, f16)",
    "gelu.default": ",",
    "mul.Tensor": ", 0.5",
    "neg.default": ",",
    "pow.Tensor_Scalar": ", 3.0",
    "relu.default": ",",
    "sigmoid.default": ",",
    "sum.dim_IntList": ", [2], True",
    "tanh.default": ",",
}
COPY = "clone.default"
LEAST_GB_PER_S = {"cpu": 0.1, "cuda": 100}  # of any machine
_SLOWER_IN_GRAPH = 0.95  # as in opbench/timing.py


def operator_time(device: str) -> list[Figure]:
    """On CPU of sleeps, on CUDA of kernels and of whole operators; and the machine's peaks."""
    from opbench.worker import Worker

    if device == "cpu":
        return [*_of_sleeps(), *_peaks(device, *child.call(peaks, device))]
    rows = [*_by_do_bench(child.call(two_kernels)), *_peaks(device, *child.call(peaks, device))]
    with tempfile.TemporaryDirectory() as folder:
        worker = Worker(_settings(), Path(folder) / "log")
        try:
            found = {
                name: _measured(worker, name, more)
                for name, more in {**OPERATORS, COPY: ","}.items()
            }
        finally:
            worker.stop()
    copied = found.pop(COPY)
    for name, backends in found.items():
        eager_ms, compiled_ms = child.call(by_hand, name, OPERATORS[name])
        speedup = backends["inductor"].speedup
        rows.append(Figure(name, "speed-up", "-", speedup, eager_ms / compiled_ms, 5))
    return rows + _of_a_copy(copied, *child.call(copies_by_hand))


def _of_sleeps() -> list[Figure]:
    """A sleep is never shorter than asked for."""
    from opbench.timing import time_all

    with click.progressbar(SLEEPS_MS, label="sleeps", file=sys.stderr) as bar:
        return [
            Figure(
                f"sleep of {ms} ms",
                "time of a call, us",
                "-",
                time_all({"sleep": _sleep(ms)}, repeats=2, device="cpu")["sleep"].median_us,
                1e3 * ms,
                25,
            )
            for ms in bar
        ]


def _sleep(ms: float) -> Callable[[], None]:
    return lambda: time.sleep(ms / 1e3)


# --- On CUDA ------------------------------------------------------------------------------------


def _by_do_bench(found: dict[str, list[float]]) -> list[Figure]:
    return [
        Figure(name, "time of a call, us", "-", ours, theirs, 5)
        for name, (ours, theirs) in found.items()
    ]


def two_kernels() -> dict[str, tuple[float, float]]:
    """A copy and a product that take 0.1 ms and more: a graph's launch is some µs of that.

    In turns of the same length: a product that runs for long slows its own clock down.
    """
    import torch
    from opbench.timing import time_all
    from triton.testing import do_bench

    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.float16) for _ in range(2))
    functions: dict[str, Callable[[], Any]] = {"copy": a.clone, "product": lambda: a @ b}
    ours: dict[str, list[float]] = {name: [] for name in functions}
    theirs: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(ROUNDS):
        for name, timing in time_all(functions, repeats=1, device="cuda").items():
            ours[name].append(timing.median_us)
        for name, function in functions.items():
            ms = do_bench(function, warmup=2, rep=10, return_mode="median")
            theirs[name].append(1e3 * ms)
    return {
        name: (statistics.median(ours[name]), statistics.median(theirs[name])) for name in functions
    }


def _settings() -> Any:
    from opbench.task import Settings

    backends = ("eager", "inductor", "instrumented")
    return Settings(backends, "cuda", "float16", 3, False, False)


def _inputs(more: str) -> str:
    return f"((T({SHAPE}, f16){more}), {{}})"


def _measured(worker: Any, name: str, more: str) -> Any:
    """The backends' timings, by name."""
    from opbench.task import Task

    sample = worker.measure(Task(f"aten.{name}", 0, _inputs(more), 1), 600)
    if not sample.backends:
        raise click.ClickException(f"{name}: {sample.reason}")
    return sample.backends


def by_hand(name: str, more: str) -> tuple[float, float]:
    """Milliseconds of the operator and of Inductor's code for it, by ``do_bench``."""
    import torch
    from opbench.input_log import parse_inputs
    from opbench.operators import find_operator
    from opbench.tensors import make_arguments
    from triton.testing import do_bench

    op = find_operator(f"aten.{name}")
    args, kwargs = make_arguments(op, parse_inputs(_inputs(more)), torch.float16, "cuda")
    compiled = torch.compile(lambda *args: op(*args, **kwargs), dynamic=False)
    functions: dict[str, Callable[[], Any]] = {
        "eager": lambda: op(*args, **kwargs),
        "compiled": lambda: compiled(*args),
    }
    times: dict[str, list[float]] = {"eager": [], "compiled": []}
    for _ in range(ROUNDS):
        for which, function in functions.items():
            times[which].append(do_bench(function, warmup=5, rep=30, return_mode="median"))
    return statistics.median(times["eager"]), statistics.median(times["compiled"])


def copies_by_hand() -> tuple[float, float]:
    """Microseconds of eager's clone in a CUDA graph, where it is the driver's copy, and outside."""
    import torch
    from triton.testing import do_bench

    x = torch.randn(256, 1024, 1024, device="cuda", dtype=torch.float16)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = x.clone()
    within_us, outside_us = (
        1e3 * statistics.median(do_bench(function, return_mode="median") for _ in range(ROUNDS))
        for function in (graph.replay, x.clone)
    )
    del kept  # until here, it is what the graph writes to
    return within_us, outside_us


def _of_a_copy(backends: Any, within_us: float, outside_us: float) -> list[Figure]:
    """The copy may be slower in a CUDA graph; where it is, the time outside is given as well."""
    eager = backends["eager"]
    slower = outside_us < _SLOWER_IN_GRAPH * within_us
    outside = eager.outside_graph_us
    rows = [
        Figure(COPY, "in a CUDA graph, us", "-", eager.median_us, within_us, 5),
        Figure(COPY, "slower in a CUDA graph", "-", int(outside is not None), int(slower), 0),
    ]
    if slower:
        rows.append(Figure(COPY, "outside a CUDA graph, us", "-", outside, outside_us, 5))
    return rows


# --- Peaks --------------------------------------------------------------------------------------


def peaks(device: str) -> tuple[float, float | None, float | None]:
    """GB/s and GFLOP/s as measured, and GB/s of the data sheet where the driver knows them."""
    import torch
    from opbench import peak

    dtype = torch.float16 if device == "cuda" else torch.float32
    found = peak.measure(device, dtype)
    sheet = None
    if device == "cuda":
        memory = torch.cuda.get_device_properties(0)
        # Twice the clock, times the bus.
        if getattr(memory, "memory_clock_rate", None):
            sheet = 2 * memory.memory_clock_rate * 1e3 * memory.memory_bus_width / 8 / 1e9
    return found.gb_per_s, found.gflop_per_s, sheet


def _peaks(
    device: str, gb_per_s: float, gflop_per_s: float | None, sheet: float | None
) -> list[Figure]:
    """A copy gets most of the data sheet's bandwidth, and never more."""
    least, most = (LEAST_GB_PER_S[device], math.inf) if sheet is None else (0.7 * sheet, sheet)
    rows = [Figure("peak", "GB/s", "-", gb_per_s, nearest(gb_per_s, least, most), 0)]
    if device == "cuda":
        rows.append(Figure("peak", "GFLOP/s", "-", gflop_per_s, nearest(gflop_per_s or 0, 1000), 0))
    return rows
