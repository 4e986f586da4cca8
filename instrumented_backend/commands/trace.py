"""``instrumented-backend trace``: what the GPUs in profiles did."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from instrumented_backend.commands.layout import echo, format_option

if TYPE_CHECKING:
    from instrumented_backend.traces.time_range import TimeRange
    from instrumented_backend.traces.utilization import TraceTime

# Above this, reading a trace shows how far it is: about 0.1 s, or more if it is compressed.
_LONG_READ_BYTES = 20_000_000


def _range(ctx: click.Context, parameter: click.Parameter, value: str | None) -> "TimeRange | None":
    from instrumented_backend.traces.time_range import TimeRange

    try:
        return None if value is None else TimeRange.parse(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command("trace")
@click.argument("traces", nargs=-1, required=True, type=Path, metavar="TRACE...")
@format_option
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
def command(
    traces: tuple[Path, ...],
    layout: str,
    quote_formulas: bool,
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
    from instrumented_backend.views.trace import TracesView

    if layout == "csv" and len(names) > 1:
        raise click.UsageError("CSV has one table: give --tables once")
    try:
        times = [_trace_time(path, within) for path in traces]
    except TraceError as error:
        raise click.UsageError(str(error)) from None
    times.sort(key=lambda time: (time.rank is None, time.rank or 0))
    echo(TracesView(times, names, top), layout, quote_formulas)


def _trace_time(path: Path, within: "TimeRange | None") -> "TraceTime":
    from instrumented_backend.records.escapes import shown
    from instrumented_backend.traces.trace_file import read_trace
    from instrumented_backend.traces.utilization import time_of

    size = os.path.getsize(path) if os.path.isfile(path) else 0
    if size < _LONG_READ_BYTES:
        return time_of(read_trace(path), within)
    label = f"reading {shown(path.name)}"
    steps = size // 100
    with click.progressbar(
        length=size, label=label, file=sys.stderr, update_min_steps=steps
    ) as bar:
        read = read_trace(path, lambda position: bar.update(position - bar.pos))
        bar.update(size - bar.pos)
    return time_of(read, within)
