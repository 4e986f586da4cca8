"""How fast traces are read, next to PyTorch, HolisticTraceAnalysis and plain JSON readers.

    python benchmarks/trace_speed.py                    # a trace of a million events, some minutes
    python benchmarks/trace_speed.py --linear           # ours alone, up to five million

The trace is a real one of an H100, repeated with shifted times and ids. Each reader runs in a
process of its own, in turn, some rounds; its time is the median, without imports; memory is the
process's peak. Growth is judged by CPU seconds, which a busy machine stretches less.
HolisticTraceAnalysis takes part if it is installed (pip install -e '.[benchmark]').
"""

import gzip
import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from tabulate import tabulate

REAL = Path(__file__).parent.parent / "tests" / "data" / "h100_inductor_step.json.gz"
LINEAR = (1_000_000, 2_000_000, 3_000_000, 4_000_000, 5_000_000)

OURS = "instrumented: read and analyse"
OURS_API = "instrumented: compute_utilization"
PARSE = "msgspec: decode the file at once, nothing more"
PIECES = "msgspec: decode it in pieces, nothing more"
TORCH = "PyTorch: compute_utilization"
HTA = "HolisticTraceAnalysis: load, kernel breakdown"

# Each takes the file's path and ends with `result`, which is shown.
READERS = {
    OURS: """
        from instrumented_backend.profiling import read_trace, time_of
        start()
        device, = time_of(read_trace(path)).devices
        result = f"matrix {device.matrix_us / device.compute_us:.3f} of compute"
    """,
    OURS_API: """
        from instrumented_backend.profiling import compute_utilization
        start()
        busy, matrix = compute_utilization(path, 1.0)
        result = f"matrix {matrix / busy:.3f} of compute"
    """,
    PARSE: """
        import msgspec
        from instrumented_backend.traces.event_stream import Fields
        start()
        with open(path, "rb") as file:
            events = msgspec.json.decode(file.read(), type=Fields).traceEvents
        result = f"{len(events):,} events"
    """,
    PIECES: """
        from pathlib import Path
        from instrumented_backend.traces.event_stream import EventStream
        start()
        result = f"{sum(len(events) for events in EventStream(Path(path))):,} events"
    """,
    "json.load": """
        import json
        start()
        with open(path) as file:
            result = f"{len(json.load(file)['traceEvents']):,} events"
    """,
    TORCH: """
        from torch._functorch.benchmark_utils import compute_utilization
        start()
        busy, matrix = compute_utilization(path, 1.0)
        result = f"matrix {matrix / busy:.3f} of busy"
    """,
    HTA: """
        import logging, os
        logging.disable(logging.CRITICAL)
        from hta.trace_analysis import TraceAnalysis
        start()
        analysis = TraceAnalysis(trace_files={0: path}, trace_dir=os.path.dirname(path))
        kinds, _ = analysis.get_gpu_kernel_breakdown(visualize=False)
        result = ", ".join(sorted(kinds["kernel_type"]))
    """,
}

PROGRAM = """
import contextlib, io, json, resource, sys, time
path = sys.argv[1]
begun = None
def start():
    global begun
    begun = time.perf_counter(), time.process_time()
with contextlib.redirect_stdout(io.StringIO()):
{reader}
    seconds, cpu = time.perf_counter() - begun[0], time.process_time() - begun[1]
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps([seconds, cpu, peak, result]))
"""


@dataclass
class Measured:
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    peak_gb: float = 0.0
    result: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def repeated(path: Path, target: Path, events: int) -> int:
    """Write ``path``'s trace again and again, each time later and with other ids."""
    document = json.loads(gzip.decompress(path.read_bytes()))
    original = document.pop("traceEvents")
    times = [event["ts"] for event in original if "ts" in event]
    period = max(times) - min(times) + 10_000
    written = 0
    with target.open("w") as file:
        file.write(json.dumps(document)[:-1] + ', "traceEvents": [')
        number = 0
        while written < events:
            shifted = list(_shifted(original, number, period))
            file.write((", " if number else "") + json.dumps(shifted)[1:-1])
            written += len(shifted)
            number += 1
        file.write("]}")
    return written


def _shifted(events: list[dict[str, Any]], number: int, period: float) -> Iterator[dict[str, Any]]:
    ids = number * 1_000_000
    for event in events:
        if number and event["ph"] in "Mi":
            continue  # names of processes and the like, which a profile has once
        event = dict(event)
        event["ts"] = round(event["ts"] + number * period, 3)
        if "id" in event:
            event["id"] += ids
        args = event.get("args", {})
        moved = {key: args[key] + ids for key in ("correlation", "External id") if key in args}
        yield {**event, "args": {**args, **moved}} if args else event


def measure(reader: str, path: Path, into: Measured) -> None:
    program = PROGRAM.format(reader=textwrap.indent(textwrap.dedent(READERS[reader]), "    "))
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True
    )
    if done.returncode:
        raise click.ClickException(f"{reader} failed:\n{done.stderr}")
    seconds, cpu_seconds, peak, into.result = json.loads(done.stdout.splitlines()[-1])
    into.seconds.append(seconds)
    into.cpu_seconds.append(cpu_seconds)
    into.peak_gb = max(into.peak_gb, peak / 1e9)


def compare(path: Path, rounds: int) -> dict[str, Measured]:
    readers = [
        reader for reader in READERS if reader != HTA or importlib.util.find_spec("hta") is not None
    ]
    measured = {reader: Measured() for reader in readers}
    turns = [reader for _ in range(rounds) for reader in readers]
    with click.progressbar(turns, label="readers", file=sys.stderr) as bar:
        for reader in bar:
            measure(reader, path, measured[reader])
    return measured


def verdicts(measured: dict[str, Measured]) -> list[tuple[str, float, str, bool]]:
    """What was promised: the figure, the limit, and whether it holds."""
    ours, api = measured[OURS], measured[OURS_API]
    rows = [
        ("PyTorch's compute_utilization over ours", measured[TORCH].median / api.median, ">= 8"),
        (
            "ours over msgspec's decoding of the file",
            ours.median / measured[PARSE].median,
            "<= 1.3",
        ),
        ("ours, peak memory in GB", max(ours.peak_gb, api.peak_gb), "< 1"),
    ]
    if HTA in measured:
        rows.insert(1, ("HTA over ours", measured[HTA].median / ours.median, ">= 20"))
    checks = {">= 8": lambda x: x >= 8, ">= 20": lambda x: x >= 20, "<= 1.3": lambda x: x <= 1.3}
    return [(*row, checks.get(row[2], lambda x: x < 1)(row[1])) for row in rows]


@click.command()
@click.option("--events", default=1_000_000, show_default=True, type=click.IntRange(1))
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1))
@click.option("--linear", is_flag=True, help="Ours alone, from one to five million events.")
def main(events: int, rounds: int, linear: bool) -> None:
    """Measure the readers side by side; exit code 1 if ours misses a limit."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        if linear:
            sys.exit(not show_linear(path, rounds))
        written = repeated(REAL, path, events)
        megabytes = path.stat().st_size / 1e6
        click.echo(f"{written:,} events, {megabytes:.0f} MB, median of {rounds}")
        measured = compare(path, rounds)
    click.echo(
        tabulate(
            [
                [
                    name,
                    f"{m.median:.2f}",
                    f"{min(m.seconds):.2f}",
                    f"{min(m.cpu_seconds):.2f}",
                    f"{m.peak_gb:.2f}",
                    m.result,
                ]
                for name, m in measured.items()
            ],
            headers=["reader", "seconds", "fastest", "CPU", "peak GB", "what it says"],
            disable_numparse=True,
        )
    )
    if HTA not in measured:
        click.echo("HolisticTraceAnalysis is not installed: pip install -e '.[benchmark]'")
    click.echo()
    rows = verdicts(measured)
    click.echo(
        tabulate(
            [[what, f"{x:.2f}", limit, "ok" if ok else "MISSED"] for what, x, limit, ok in rows],
            headers=["what", "figure", "limit", ""],
            disable_numparse=True,
        )
    )
    sys.exit(not all(ok for *_, ok in rows))


def show_linear(path: Path, rounds: int) -> bool:
    """CPU seconds a million events, which must not grow by more than a quarter."""
    rows = []
    for events in LINEAR:
        written = repeated(REAL, path, events)
        measured = Measured()
        for _ in range(rounds):
            measure(OURS, path, measured)
        least = min(measured.cpu_seconds)
        rows.append((written, least, least / written * 1e6, measured.peak_gb))
    click.echo(
        tabulate(
            [[f"{n:,}", f"{s:.2f}", f"{p:.2f}", f"{g:.2f}"] for n, s, p, g in rows],
            headers=["events", "CPU s, least", "a million", "peak GB"],
            disable_numparse=True,
        )
    )
    return max(row[2] for row in rows) <= 1.25 * rows[0][2]


if __name__ == "__main__":
    main()
