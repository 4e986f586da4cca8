"""What the report says against oracles that this project did not write.

    python benchmarks/accuracy.py                 # six architectures, some minutes
    python benchmarks/accuracy.py --model gpt2 --device cuda

Each model trains for some steps, with an empty cache and again with a full one. The oracles:

- ops: Dynamo's own graphs run op by op under torch.profiler (`tests/oracle.py`);
- calls: PyTorch's own events in a torch.profiler of the same compiled steps; eager ops and op time:
  the outermost events in it outside the regions, which TORCHDYNAMO marks;
- graphs: `torch._dynamo.utils.counters`; compile phases: the sum of them, by
  `torch._dynamo.utils.calculate_time_spent`; kernels: their definitions in the cache's files;
- on CUDA, device time: torch.profiler's kernels, linked to PyTorch's events by correlation id.

Exit code 1 if a figure is off by more than its limit.
"""

import functools
import json
import os
import re
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

STEPS, BLOCKS, BATCHES = 5, 7, 48
REGIONS = ("TORCHDYNAMO", "TORCHDYNAMO_BACKWARD")
CALL_MARK = "## Call CompiledFxGraph"
KERNEL = re.compile(r"^\w+ = async_compile\.(?:cpp_pybinding|triton)\(", re.M)


@dataclass
class Row:
    """One figure of one model. ``limit`` is in percent of the oracle, or in points of a share."""

    model: str
    figure: str
    cache: str
    ours: float | None
    oracle: float
    limit: float
    in_points: bool = False

    @property
    def error(self) -> float | None:
        if self.ours is None:
            return None
        difference = abs(self.ours - self.oracle)
        if self.in_points or not difference:
            return difference
        return 100 * difference / self.oracle if self.oracle else float("inf")

    @property
    def ok(self) -> bool:
        return self.error is not None and self.error <= self.limit


def measure(name: str, device: str) -> Iterator[Row]:
    """All figures of some training steps, cold and warm."""
    import architectures
    import oracle
    import torch
    from torch._inductor.utils import fresh_cache

    import instrumented_backend

    torch.manual_seed(0)
    model, inputs = architectures.ALL_ARCHITECTURES[name]()
    model = model.to(device)
    # Larger than for the tests: a profiler adds a microsecond to each op, and so to the eager part.
    inputs = {
        key: value.to(device).repeat(BATCHES, *[1] * (value.ndim - 1))
        for key, value in inputs.items()
    }
    # One op for all parameters: of many small ones, a profiler would time mostly itself.
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def step(compiled: torch.nn.Module) -> None:
        compiled(**inputs).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    def repeat(compiled: torch.nn.Module) -> None:
        for _ in range(STEPS):
            step(compiled)

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
            phases = instrumented_backend.report().compile["phases"]
            seconds = torch._dynamo.utils.calculate_time_spent()["total_wall_time"]
            yield Row(name, "compile phases, s", cache, sum(phases.values()), seconds, 3)
            shares: list[tuple[float, float]] = []  # ours, theirs: taking turns
            for _ in range(BLOCKS):
                instrumented_backend.reset()
                repeat(compiled)
                report = instrumented_backend.report()
                events = profile(functools.partial(repeat, compiled), device)
                shares.append((report.summary["pct_time"], events.pct_time))
            captured, ops = report.ops.captured, report.ops
            per_step = {
                "forward ops": (captured["forward_ops"], truth.inside.total(), 1.0),
                "backward ops": (captured["backward_ops"], truth.backward, 2.0),
                "eager ops": (
                    None if ops.total_ops is None else ops.total_ops - captured["ops"],
                    events.eager_ops / STEPS,
                    1.0,
                ),
            }
            for figure, (ours, theirs, limit) in per_step.items():
                yield Row(
                    name, figure, cache, None if ours is None else ours / STEPS, theirs, limit
                )
            summary = report.summary
            calls = summary["graph_calls"] + summary["backward_calls"]
            yield Row(name, "calls", cache, calls, events.calls, 0)
            graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
            yield Row(name, "graphs", cache, summary["graphs"], graphs, 0)
            ours = {(k.path, k.kernel_name) for k in report.kernels if k.language != "extern"}
            yield Row(
                name,
                "kernels",
                cache,
                len(ours),
                kernels_in(Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])),
                0,
            )
            ours_pct, theirs_pct = map(statistics.median, zip(*shares, strict=True))
            yield Row(name, "op time, %", cache, ours_pct, theirs_pct, 5, in_points=True)


@dataclass
class Events:
    """What torch.profiler saw, as far as PyTorch's own events tell it."""

    calls: int
    eager_ops: int
    pct_time: float  # inside the regions, of that and the outermost events outside them


def profile(run: Callable[[], Any], device: str) -> Events:
    import oracle
    import torch
    from torch.profiler import ProfilerActivity

    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device == "cuda")
    with torch.profiler.profile(activities=activities) as profiler:
        run()
        if device == "cuda":
            torch.cuda.synchronize()
    events = [
        event
        for event in profiler.profiler.kineto_results.events()
        if event.device_type() == torch.autograd.DeviceType.CPU
    ]
    events.sort(key=lambda e: (e.start_thread_id(), e.start_ns(), -e.duration_ns()))
    calls, eager_ops, inside, outside = 0, 0, 0, 0
    until: dict[int, int] = {}
    for event in events:
        thread, name = event.start_thread_id(), event.name()
        start, duration = event.start_ns(), event.duration_ns()
        calls += name.startswith(CALL_MARK)
        if start < until.get(thread, 0):
            continue
        if name in REGIONS:
            inside += duration
        elif (
            name.removeprefix(oracle.NODE).startswith(oracle.WRAPPERS)
            or name.startswith("cu")  # calls of CUDA's runtime and driver, which are no ops
            or event.scope() == oracle.USER_SCOPE
        ):
            continue
        else:
            eager_ops += 1
            outside += duration
        until[thread] = start + duration
    return Events(calls, eager_ops, 100 * inside / (inside + outside))


def kernels_in(cache: Path) -> int:
    """Definitions in the modules of graphs, which are those that wait for their kernels."""
    texts = [path.read_text() for path in cache.glob("*/*.py")]
    return sum(len(KERNEL.findall(text)) for text in texts if "async_compile.wait(" in text)


@click.command()
@click.option("--model", multiple=True, help="Only this one; may be given several times.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
@click.option("--json", "json_path", type=Path, help="Write the rows there as well.")
def main(model: tuple[str, ...], device: str, json_path: Path | None) -> None:
    """Compare the report's figures with their oracles; exit code 1 if one is off."""
    os.environ |= {"INSTRUMENTED_TABLES": "none", "INSTRUMENTED_OPS": "always"}
    import architectures
    import torch

    unknown = set(model) - set(architectures.ALL_ARCHITECTURES)
    if unknown:
        choices = ", ".join(architectures.ALL_ARCHITECTURES)
        raise click.BadParameter(f"{unknown.pop()}; choose from {choices}", param_hint="--model")
    rows: list[Row] = []
    names = list(model or architectures.ALL_ARCHITECTURES)
    with click.progressbar(names, file=sys.stderr) as bar:
        for name in bar:
            rows += measure(name, device)
    click.echo(
        tabulate(
            [
                [
                    row.model,
                    row.figure,
                    row.cache,
                    "-" if row.ours is None else f"{row.ours:.6g}",
                    f"{row.oracle:.6g}",
                    "-" if row.error is None else f"{row.error:.2f}",
                    f"{row.limit:g} {'points' if row.in_points else '%'}",
                    "ok" if row.ok else "OFF",
                ]
                for row in rows
            ],
            headers=["model", "figure", "cache", "ours", "oracle", "error", "limit", ""],
            disable_numparse=True,
        )
    )
    click.echo(f"torch {torch.__version__}, {device}; ops are of one training step")
    if json_path is not None:
        json_path.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    sys.exit(not all(row.ok for row in rows))


if __name__ == "__main__":
    main()
