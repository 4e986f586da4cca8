"""The commands: ``instrumented-backend demo | run | show | kernels | bench | trace``."""

import errno
import gc
import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from instrumented_backend import __version__, settings
from instrumented_backend.commands.script import Script, run_as_main
from instrumented_backend.records import Report, ReportError, find_reports, read_report
from instrumented_backend.views.text import render

MANY_FILES = 50  # more of them get a progress bar
if TYPE_CHECKING:
    from instrumented_backend.traces.time_range import TimeRange
    from instrumented_backend.traces.utilization import TraceTime

# Above this, reading a trace shows how far it is: about 0.1 s, or more if it is compressed.
_LONG_READ_BYTES = 20_000_000


class _Commands(click.Group):
    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Environment variables"):
            formatter.write_dl(
                [
                    (variable.name, f"{variable.meaning} [default: {variable.default or 'empty'}]")
                    for variable in settings.VARIABLES
                ],
                col_max=len("INSTRUMENTED_DEVICE_TIME"),
            )


_format_option = click.option(
    "--format",
    "layout",
    type=click.Choice(["table", "json", "csv"]),
    default="table",
    show_default=True,
    help="json and csv have every column.",
)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def cli() -> None:
    """torch.compile(model, backend="instrumented"): Inductor, and a report of what it did.

    The report comes at the end of any program that uses the backend. These commands try it
    out, run a program that does not name it, and print a saved report again.
    """


@cli.command()
@click.option(
    "--steps", default=5, show_default=True, type=click.IntRange(1), help="Training steps."
)
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    help="Where to train. [default: cuda if there is one]",
)
def demo(steps: int, device: str | None) -> None:
    """Train a small GPT on made-up text with the backend, then show the report.

    The model checks its loss inside forward, as one does; the report shows what that costs.
    """
    settings.load()
    import torch

    from instrumented_backend.demo import train

    if device == "cuda" and not torch.cuda.is_available():
        raise click.BadParameter("no CUDA device here, or torch has no CUDA", param_hint="--device")
    train(steps, device)


@cli.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option("-m", "module", metavar="MODULE", help="Run a module, as python -m does.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[SCRIPT] [ARGS]...")
def run(module: str | None, arguments: tuple[str, ...]) -> Script:
    """Run an unchanged program with this backend in Inductor's place.

    Every torch.compile in it that names no backend, or Inductor, goes through this one. Its
    arguments, output and exit code are those of `python SCRIPT ARGS`.

    \b
        instrumented-backend run train.py --epochs 1
        instrumented-backend run -m package.train --epochs 1
    """
    settings.load()
    if module is not None:
        return Script(module=module, path=None, arguments=arguments)
    if not arguments:
        raise click.UsageError("name a SCRIPT to run, or a module with -m")
    path = Path(arguments[0])
    if not os.path.exists(path):
        raise click.BadParameter(f"{path}: no such file", param_hint="SCRIPT")
    return Script(module=None, path=path, arguments=arguments[1:])


def _tables(ctx: click.Context, parameter: click.Parameter, value: str) -> tuple[str, ...]:
    try:
        return settings.read_tables(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@cli.command()
@click.argument("reports", nargs=-1, required=True, type=Path, metavar="REPORT...")
@click.option(
    "--tables",
    default="summary",
    show_default=True,
    callback=_tables,
    help=f"A comma list of {', '.join(settings.TABLES)}; or all.",
)
def show(reports: tuple[Path, ...], tables: tuple[str, ...]) -> None:
    """Print saved reports again, on any machine.

    A program leaves report.rank<R>.pid<P>.json in INSTRUMENTED_DIR when it ends. REPORT is such a
    file, or the folder, for all in it.
    """
    files = [file for path in reports for file in _files(path)]
    for report in [_read(file) for file in files]:
        if len(files) > 1:
            click.echo(f"== rank {report.run.rank}, pid {report.run.pid}")
        click.echo(render(report, tables))


@cli.command()
@click.argument("paths", nargs=-1, required=True, type=Path, metavar="PATH...")
@_format_option
def kernels(paths: tuple[Path, ...], layout: str) -> None:
    """Describe every kernel in generated code, on any machine.

    PATH is a module that Inductor generated (of a graph, or of one kernel), or a folder of them,
    such as an Inductor cache. The code is read, never run.

    \b
        instrumented-backend kernels /tmp/torchinductor_$USER
        instrumented-backend kernels graph.py --format json
    """
    from instrumented_backend.kernels.code_files import CollectError, collect, find_files
    from instrumented_backend.views.kernels import render_kernels

    gc.disable()  # syntax trees hold no cycles, and looking for some takes a third of the time
    try:
        files = find_files(paths)
        if sys.stderr.isatty() and len(files) > MANY_FILES:
            with click.progressbar(files, label="Reading", file=sys.stderr) as bar:
                collected = collect(bar)
        else:
            collected = collect(files)
    except CollectError as error:
        raise click.UsageError(str(error)) from None
    if not collected.kernels:
        first = next(iter(collected.skipped.values()))
        raise click.UsageError(f"no generated kernel found; {first}")
    click.echo(render_kernels(collected.kernels, layout), nl=layout != "csv")
    if collected.skipped:
        click.echo(f"{len(collected.skipped)} files are no generated code: left out", err=True)


def _finite(ctx: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is no limit; give a number")
    return value


@cli.command()
@click.argument("paths", nargs=-1, required=True, type=Path, metavar="PATH...")
@click.option("--all-configs", is_flag=True, help="Time each config the autotuner would try.")
@click.option("--profile", is_flag=True, help="Profile each graph, too: kernels by category.")
@_format_option
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
def bench(
    paths: tuple[Path, ...],
    all_configs: bool,
    profile: bool,
    layout: str,
    time_limit: float,
    memory_limit: float | None,
) -> None:
    """Time every kernel of generated modules, each alone: ms, GB/s, share of peak.

    RUNS THE GENERATED CODE, in child processes, with random inputs of the shapes in it; files that
    are no generated modules are not run.

    PATH is a module that Inductor generated, a folder of them such as an Inductor cache, or a saved
    report.*.json, or the folder of it, whose code is found again. Nothing has to be set before
    compiling.

    \b
        instrumented-backend bench /tmp/torchinductor_$USER
        instrumented-backend bench report.rank0.pid17.json --format csv
    """
    from instrumented_backend.bench.driver import NoDeviceError, Options, bench, free_memory
    from instrumented_backend.bench.targets import find_targets
    from instrumented_backend.kernels.code_files import CollectError
    from instrumented_backend.views.bench import render_bench

    try:
        targets = find_targets(paths)
    except CollectError as error:
        raise click.UsageError(str(error)) from None
    if not targets.modules:
        first = next(iter(targets.left_out.values()))
        raise click.UsageError(f"no generated module found; {first}")
    limit = free_memory() if memory_limit is None else int(memory_limit * 1e9)
    options = Options(all_configs, profile, time_limit, limit)
    count = sum(len(target.records) for target in targets.modules)
    try:
        if sys.stderr.isatty():
            with click.progressbar(length=count, label="Timing", file=sys.stderr) as bar:
                run = bench(targets.modules, options, bar.update)
        else:
            run = bench(targets.modules, options)
    except NoDeviceError as error:
        raise click.UsageError(str(error)) from None
    run.left_out = {**targets.left_out, **run.left_out}
    click.echo(render_bench(run, layout), nl=layout != "csv")
    for graph in run.graphs:
        if graph.profile:
            click.echo(graph.profile, err=layout != "table")
    no_code = len(targets.left_out)
    if no_code:
        click.echo(f"{no_code} files are no generated modules: left out", err=True)
    for path, reason in run.left_out.items():
        if path not in targets.left_out:
            click.echo(f"{path}: {reason}: left out", err=True)
    if run.interrupted:
        raise click.Abort


def _range(ctx: click.Context, parameter: click.Parameter, value: str | None) -> "TimeRange | None":
    from instrumented_backend.traces.time_range import TimeRange

    try:
        return None if value is None else TimeRange.parse(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@cli.command()
@click.argument("traces", nargs=-1, required=True, type=Path, metavar="TRACE...")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "csv"]),
    default="table",
    show_default=True,
)
@click.option(
    "--tables",
    "names",
    type=click.Choice(["devices", "kernels"]),
    multiple=True,
    help="Only this table; CSV has one, by default devices.",
)
@click.option(
    "--range",
    "within",
    callback=_range,
    metavar="RANGE",
    help="Steps (ProfilerStep#3, #3-5) or times from a trace's first event (10-20ms, 1.5s-); "
    "a time without a unit is in us.",
)
@click.option("--top", default=10, show_default=True, type=click.IntRange(0), help="Kernels a GPU.")
def trace(
    traces: tuple[Path, ...],
    form: str,
    names: tuple[str, ...],
    within: "TimeRange | None",
    top: int,
) -> None:
    """GPU utilisation from Chrome traces (.json, .json.gz) of PyTorch's profiler.

    For each GPU: busy, computing, in matrix work, communicating, copying; what it was idle for;
    the share of kernel time that compiled graphs launched; its longest kernels. Give the traces of
    several ranks to see them side by side.
    """
    from instrumented_backend.traces.event_stream import TraceError
    from instrumented_backend.views import trace as views

    if form == "csv" and len(names) > 1:
        raise click.UsageError("CSV has one table: give --tables once")
    try:
        times = [_trace_time(path, within) for path in traces]
    except TraceError as error:
        raise click.UsageError(str(error)) from None
    times.sort(key=lambda time: (time.rank is None, time.rank or 0))
    if form == "json":
        click.echo(views.to_json(times, top))
    elif form == "csv":
        click.echo(views.to_csv(times, names[0] if names else "devices", top), nl=False)
    else:
        click.echo(views.render(times, names or views.TABLES, top))


def _trace_time(path: Path, within: "TimeRange | None") -> "TraceTime":
    from instrumented_backend.traces.trace_file import read_trace
    from instrumented_backend.traces.utilization import time_of

    size = os.path.getsize(path) if os.path.isfile(path) else 0
    if size < _LONG_READ_BYTES:
        return time_of(read_trace(path), within)
    label = f"reading {path.name}"
    steps = size // 100
    with click.progressbar(
        length=size, label=label, file=sys.stderr, update_min_steps=steps
    ) as bar:
        read = read_trace(path, lambda position: bar.update(position - bar.pos))
        bar.update(size - bar.pos)
    return time_of(read, within)


def _files(path: Path) -> list[Path]:
    """A report, or those in a folder."""
    if not os.path.isdir(path):
        return [path]
    try:
        found = find_reports(path)
    except ReportError as error:
        raise click.UsageError(str(error)) from None
    if not found:
        raise click.UsageError(f"{path}: no report.rank<R>.pid<P>.json in this folder")
    return found


def _read(path: Path) -> Report:
    try:
        return read_report(path)
    except ReportError as error:
        raise click.UsageError(str(error)) from None


def main() -> None:
    """The console script. A script that `run` starts runs outside click, which would change
    what its exceptions and its Ctrl-C do."""
    try:
        result = cli.main(standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(2)
    except (click.ClickException, settings.SettingsError) as error:
        message = error.format_message() if isinstance(error, click.ClickException) else error
        click.echo(f"instrumented-backend: {message}", err=True)
        sys.exit(2)
    except click.Abort:
        sys.exit(130)
    except OSError as error:
        if error.errno != errno.ENOSPC or error.filename is not None:
            raise
        click.echo(f"instrumented-backend: cannot write the output: {error.strerror}", err=True)
        sys.exit(2)
    if isinstance(result, Script):
        run_as_main(result)
    elif isinstance(result, int):
        sys.exit(result)
