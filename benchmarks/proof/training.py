"""Ops, their time, calls, graphs, kernels, bytes and compile phases of some training steps."""

import functools
import os
import re
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proof import models
from proof.figures import Figure
from proof.kernel_bytes import bytes_by_inductor, bytes_rows

STEPS, BLOCKS = 5, 7
REGIONS = ("TORCHDYNAMO", "TORCHDYNAMO_BACKWARD")
# Of Triton kernels, when they run first: after what PyTorch takes for its compile time.
TUNING = ("CachingAutotuner.benchmark_all_configs", "CachingAutotuner.coordinate_descent_tuning")
CALL_MARK = "## Call CompiledFxGraph"
KERNEL = re.compile(r"^\w+ = async_compile\.(?:cpp_pybinding|triton)\(", re.M)


def measure(name: str, device: str) -> Iterator[Figure]:
    """All figures of some training steps, cold and warm."""
    from torch._inductor import config

    # What to pad is decided by timing, once one way and once the other; the bytes depend on it.
    with config.patch(shape_padding=False):
        yield from _measure(name, device)


def _measure(name: str, device: str) -> Iterator[Figure]:
    import torch
    from oracles import oracle
    from torch._inductor.utils import fresh_cache

    import instrumented_backend

    training = models.training(name, device)
    step, model = training.step, training.model
    inductors_bytes = bytes_by_inductor(training, device)
    torch._dynamo.reset()
    by_op = torch.compile(model, backend=oracle.run_in_region)
    for _ in range(2):  # the optimizer's first step makes its state
        step(by_op)
    truth = oracle.profile(lambda: step(by_op))
    with fresh_cache():
        for cache in ("cold", "warm"):
            torch._dynamo.reset()
            torch._dynamo.utils.counters.clear()
            torch._dynamo.utils.cumulative_time_spent_ns.clear()
            instrumented_backend.reset()
            compiled = torch.compile(model, backend="instrumented")
            for _ in range(2):
                step(compiled)
            phases = instrumented_backend.report().compile.phases
            spent = torch._dynamo.utils.calculate_time_spent()
            seconds = spent["total_wall_time"] + sum(spent.get(key, 0) for key in TUNING)
            yield Figure(name, "compile phases, s", cache, sum(phases.values()), seconds, 3)
            shares: list[tuple[float, float]] = []  # ours, theirs: taking turns
            for _ in range(BLOCKS):
                instrumented_backend.reset()
                training.steps(compiled, STEPS)
                report = instrumented_backend.report()
                events = profile(functools.partial(training.steps, compiled, STEPS))
                shares.append((report.summary.pct_time, events.pct_time))
            captured, ops = report.ops.captured, report.ops
            per_step = {
                "forward ops": (captured.forward_ops, truth.inside.total(), 1.0),
                "backward ops": (captured.backward_ops, truth.backward, 2.0),
                "eager ops": (
                    None if ops.total_ops is None else ops.total_ops - captured.ops,
                    events.eager_ops / STEPS,
                    1.0,
                ),
            }
            for figure, (ours, theirs, limit) in per_step.items():
                yield Figure(
                    name, figure, cache, None if ours is None else ours / STEPS, theirs, limit
                )
            summary = report.summary
            calls = summary.graph_calls + summary.backward_calls
            yield Figure(name, "calls", cache, calls, events.calls, 0)
            graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
            yield Figure(name, "graphs", cache, summary.graphs, graphs, 0)
            ours = {(k.path, k.kernel_name) for k in report.kernels if k.language != "extern"}
            yield Figure(
                name,
                "kernels",
                cache,
                len(ours),
                kernels_in(Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])),
                0,
            )
            yield from bytes_rows(name, cache, report.kernels, inductors_bytes)
            ours_pct, theirs_pct = map(statistics.median, zip(*shares, strict=True))
            limit = 2 if device == "cpu" else 5  # points; a launch-bound step is shorter
            yield Figure(name, "op time, %", cache, ours_pct, theirs_pct, limit, in_points=True)


@dataclass
class Events:
    """What torch.profiler saw, as far as PyTorch's own events tell it."""

    calls: int
    eager_ops: int
    # Inside the regions, of that and the outermost events outside them; less what the profiler's
    # own work takes of both.
    pct_time: float


def profile(run: Callable[[], Any]) -> Events:
    """On CUDA without the kernels: to note each launch would take up more of an op's time."""
    import torch
    from oracles import oracle

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        run()
    events = list(profiler.profiler.kineto_results.events())
    events.sort(key=lambda e: (e.start_thread_id(), e.start_ns(), -e.duration_ns()))
    calls, eager_ops, inside, outside = 0, 0, 0.0, 0.0
    cost_ns = nested_event_ns()
    until: dict[int, int] = {}
    in_region: dict[int, bool] = {}  # by thread: what the outermost event under way is
    for event in events:
        thread, name = event.start_thread_id(), event.name()
        start, duration = event.start_ns(), event.duration_ns()
        calls += name.startswith(CALL_MARK)
        if start < until.get(thread, 0):
            inside -= cost_ns * in_region[thread]
            outside -= cost_ns * (not in_region[thread])
            continue
        if name in REGIONS:
            inside += duration
        elif oracle.is_no_op(name.removeprefix(oracle.NODE)) or event.scope() == oracle.USER_SCOPE:
            continue
        else:
            eager_ops += 1
            outside += duration
        until[thread] = start + duration
        in_region[thread] = name in REGIONS
    return Events(calls, eager_ops, 100 * inside / (inside + outside))


def nested_event_ns(count: int = 1000, repeats: int = 7) -> float:
    """What the profiler adds to an event's time for each one inside it."""
    import torch

    from instrumented_backend.torch_compat import profilers

    region = profilers.record_function_fast()

    def times() -> Iterator[float]:
        for _ in range(repeats):
            start = time.perf_counter_ns()
            for _ in range(count):
                with region("event"):
                    pass
            yield (time.perf_counter_ns() - start) / count

    without = statistics.median(times())
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        return statistics.median(times()) - without


def kernels_in(cache: Path) -> int:
    """Definitions in the modules of graphs, which are those that wait for their kernels."""
    texts = [path.read_text() for path in cache.glob("*/*.py")]
    return sum(len(KERNEL.findall(text)) for text in texts if "async_compile.wait(" in text)
