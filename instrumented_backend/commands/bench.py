"""``instrumented-backend bench``: the kernels of generated modules, timed."""

import math
import sys
from pathlib import Path

import click

from instrumented_backend.commands.layout import echo, format_option


def _finite(ctx: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is no limit; give a number")
    return value


@click.command("bench")
@click.argument("paths", nargs=-1, required=True, type=Path, metavar="PATH...")
@click.option("--all-configs", is_flag=True, help="Time each config the autotuner would try.")
@click.option("--profile", is_flag=True, help="Profile each graph, too: kernels by category.")
@format_option
@click.option("--json", "layout", flag_value="json", help="As --format json.")
@click.option("--csv", "layout", flag_value="csv", help="As --format csv.")
@click.option(
    "--time-limit",
    default=60.0,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    callback=_finite,
    help="Seconds for a kernel; ten times as many for loading a module.",
)
@click.option(
    "--memory-limit",
    type=click.FloatRange(min=0, min_open=True),
    callback=_finite,
    metavar="GB",
    help="Memory for a module on CPU. [default: what the machine has free]",
)
def command(
    paths: tuple[Path, ...],
    all_configs: bool,
    profile: bool,
    layout: str,
    quote_formulas: bool,
    time_limit: float,
    memory_limit: float | None,
) -> int:
    """Time every kernel of generated modules, each alone: ms, GB/s, share of peak.

    RUNS THE GENERATED CODE, in child processes, with random inputs of the shapes in it; files that
    are no generated modules are not run.

    PATH is a module that Inductor generated, a folder of them such as an Inductor cache, or a saved
    report.*.json, or the folder of it, whose code is found again. Nothing has to be set before
    compiling. The exit code is 1 where nothing could be timed.

    \b
        instrumented-backend bench /tmp/torchinductor_$USER
        instrumented-backend bench report.rank0.pid17.json --format csv
    """
    from instrumented_backend.bench.driver import NoDeviceError, Options, bench, free_memory
    from instrumented_backend.bench.targets import find_targets
    from instrumented_backend.kernels.code_files import CodeFileError
    from instrumented_backend.records.escapes import shown, shown_lines
    from instrumented_backend.views.bench import BenchView

    try:
        targets = find_targets(paths)
    except CodeFileError as error:
        raise click.UsageError(str(error)) from None
    if not targets.modules:
        first = next(iter(targets.left_out.values()))
        raise click.UsageError(f"no generated module found; {first}")
    limit = free_memory() if memory_limit is None else int(memory_limit * 1e9)
    options = Options(all_configs, profile, time_limit, limit)
    count = sum(len(target.kernels) for target in targets.modules)
    try:
        if sys.stderr.isatty():
            with click.progressbar(length=count, label="Timing", file=sys.stderr) as bar:
                run = bench(targets.modules, options, bar.update)
        else:
            run = bench(targets.modules, options)
    except NoDeviceError as error:
        raise click.UsageError(str(error)) from None
    run.left_out = {**targets.left_out, **run.left_out}
    echo(BenchView(run), layout, quote_formulas)
    for graph in run.graphs:
        if graph.profile:
            click.echo(shown_lines(graph.profile), err=layout != "table")
    no_code = len(targets.left_out)
    if no_code:
        click.echo(f"{no_code} files are no generated modules: left out", err=True)
    for path, reason in run.left_out.items():
        if path not in targets.left_out:
            click.echo(shown(f"{path}: {reason}: left out"), err=True)
    if run.interrupted:
        raise click.Abort
    return 0 if run.timed_anything else 1
