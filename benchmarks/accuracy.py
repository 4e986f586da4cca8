"""What the report says against oracles that this project did not write.

    python benchmarks/accuracy.py                 # six architectures, some minutes
    python benchmarks/accuracy.py --model gpt2 --device cuda
    python benchmarks/accuracy.py --only modes --only bench    # named only: minutes each

Each model trains for some steps, with an empty cache and again with a full one. The oracles:

- ops: Dynamo's own graphs run op by op under torch.profiler (`oracles/oracle.py`);
- calls: PyTorch's own events in a torch.profiler of the same compiled steps; eager ops and op time:
  the outermost events in it outside the regions, which TORCHDYNAMO marks, less what the profiler
  itself adds to both;
- graphs: `torch._dynamo.utils.counters`; compile phases: the sum of them, by
  `torch._dynamo.utils.calculate_time_spent`, with the tuning of Triton kernels at their first
  call; kernels: their definitions in the cache's files;
- bytes of a kernel: the count of Inductor's scheduler for the nodes in it; on CUDA what Inductor
  would write to `kernel_num_gb`;
- time of C++ kernels in the run: Inductor's own marks, `cpp.enable_kernel_profile`;
- utilisation: PyTorch's `benchmark_utils` on recorded traces of an H100, and on CUDA on new ones;
- on CUDA, device time: torch.profiler's kernels, linked to PyTorch's events by correlation id, and
  for extern calls summed under the ops in the generated code;
- `bench`: the harness in Inductor's own modules; on CUDA what torch.profiler saw in the run, and
  PyTorch's `do_bench_using_profiling` by hand;
- `benchmark_utilization`: torch.profiler's kernels over the length of the run;
- the operator benchmark: sleeps, and on CUDA `do_bench` by hand;
- compile times: what torch writes down of each compilation; `INSTRUMENTED_OPS=auto`: `always`.

Exit code 1 if a figure is off by more than its limit. Ctrl-C prints what was measured until then.
"""

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import click
from proof.figures import FIGURE_HEADERS, Figure, exit_code, measured, table, write_json

MEANINGS = {
    "training": "ops, op time, calls, graphs, kernels, bytes, compile phases, a model each",
    "kernel-time": "time of C++ kernels in the run, a model each; on CPU",
    "device": "device time and utilisation, a model each, and a net with graph breaks; on CUDA",
    "traces": "utilisation from recorded traces",
    "modes": "auto against always, 200 steps of GPT-2",
    "bench": "on CPU kernels against the compiled call, on CUDA against the run and by hand",
    "compile-time": "forward and backward compilations against torch's own figures",
    "op-time": "ops with compilations inside, and what is far from any graph; on CPU",
    "operators": "the operator benchmark's timing, and its speed-ups on CUDA",
    "utilization": "benchmark_utilization against torch.profiler; on CUDA",
}
DEFAULT = {
    "cpu": ("training", "kernel-time", "traces"),
    "cuda": ("training", "device", "traces"),
}
NOT_ON = {"cpu": ("device", "utilization"), "cuda": ("kernel-time", "op-time")}


@click.command(
    epilog="\b\nWhat --only names (by default all that the device has down to traces):\n"
    + "\n".join(f"  {name:13}{meaning}" for name, meaning in MEANINGS.items())
)
@click.option("--model", multiple=True, help="Only this one; may be given several times.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
@click.option("--only", type=click.Choice(list(MEANINGS)), multiple=True)
@click.option("--json", "json_path", type=Path, help="Write the rows there as well.")
def main(
    model: tuple[str, ...], device: str, only: tuple[str, ...], json_path: Path | None
) -> None:
    """Compare the report's figures with their oracles; exit code 1 if one is off."""
    os.environ |= {"INSTRUMENTED_TABLES": "none", "INSTRUMENTED_OPS": "always"}
    import torch
    from oracles import architectures

    unknown = set(model) - set(architectures.ALL_ARCHITECTURES)
    if unknown:
        choices = ", ".join(architectures.ALL_ARCHITECTURES)
        raise click.BadParameter(f"{unknown.pop()}; choose from {choices}", param_hint="--model")
    misplaced = set(only) & set(NOT_ON[device])
    if misplaced:
        raise click.BadParameter(f"{misplaced.pop()} is not for {device}", param_hint="--only")
    from proof.bench_gpu import kernels_on_gpu
    from proof.bench_sum import sum_of_kernels
    from proof.busy import busy
    from proof.compile_time import compile_time
    from proof.device_time import NET, device_time
    from proof.kernel_time import kernel_time
    from proof.modes import auto_against_always
    from proof.op_time import op_time
    from proof.operator_time import operator_time
    from proof.training import measure
    from proof.utilization import recorded

    names = model or tuple(architectures.ALL_ARCHITECTURES)
    measures: dict[str, Callable[[], Iterable[Figure]]] = {
        "training": lambda: _of_models(names, lambda name: measure(name, device)),
        "kernel-time": lambda: _of_models(names, kernel_time),
        "device": lambda: _of_models(model or (NET, *names), device_time),
        "traces": recorded,
        "modes": lambda: auto_against_always(device),
        "bench": kernels_on_gpu if device == "cuda" else sum_of_kernels,
        "compile-time": lambda: compile_time(device),
        "op-time": op_time,
        "operators": lambda: operator_time(device),
        "utilization": busy,
    }
    rows, interrupted = measured(
        row for group in only or DEFAULT[device] for row in measures[group]()
    )
    if interrupted:
        click.echo("interrupted: what was measured until then", err=True)
    click.echo(table(rows, FIGURE_HEADERS))
    click.echo(f"torch {torch.__version__}, {device}; ops are of one training step")
    if json_path is not None:
        write_json(json_path, rows)
    sys.exit(exit_code(rows, interrupted))


def _of_models(
    names: tuple[str, ...], measure: Callable[[str], Iterable[Figure]]
) -> Iterable[Figure]:
    with click.progressbar(names, file=sys.stderr) as bar:
        for name in bar:
            yield from measure(name)


if __name__ == "__main__":
    main()
