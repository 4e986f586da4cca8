"""What the backend costs, against plain Inductor, as pairs measured in turn on one machine.

    python benchmarks/overhead.py                     # all of it, some minutes
    python benchmarks/overhead.py --only call --device cuda

Each row is the median over pairs with its quartiles, and the limit that it has to stay inside.
Both backends take turns inside one process: one process differs from the next by more than there is
to see.
"""

import contextlib
import json
import logging
import math
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from tabulate import tabulate

BACKENDS = ("inductor", "instrumented")


@dataclass
class Row:
    """One figure; ``unit`` is "x" for a ratio to Inductor."""

    what: str
    median: float
    low_quartile: float
    high_quartile: float
    pairs: int
    unit: str
    limit: float

    @property
    def ok(self) -> bool:
        return self.median <= self.limit


def summarise(what: str, values: list[float], unit: str, limit: float) -> Row:
    low, median, high = statistics.quantiles(values, n=4)
    return Row(what, median, low, high, len(values), unit, limit)


def python(source: str, *arguments: str, cache: str, **variables: str) -> str:
    """Run a program in a process of its own; what it prints last."""
    environment = {
        **os.environ,
        "TORCHINDUCTOR_CACHE_DIR": cache,
        "INSTRUMENTED_TABLES": "summary",
        **variables,
    }
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source), *arguments],
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise click.ClickException(f"a measured program failed:\n{done.stderr}")
    return done.stdout.splitlines()[-1]


# --- Calls --------------------------------------------------------------------------------------


def tiny_call(device: str, rounds: int) -> list[Row]:
    """A compiled call of 8 elements: microseconds over Inductor's, and a naive wrapper's."""
    import torch

    os.environ["INSTRUMENTED_TABLES"] = "none"

    @torch._dynamo.register_backend  # type: ignore[attr-defined]
    def naive(gm: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., object]:
        from torch._inductor.compile_fx import compile_fx

        compiled = compile_fx(gm, inputs)

        def call(*args: object) -> object:
            with torch.profiler.record_function("TORCHDYNAMO"):
                return compiled(*args)

        return call

    functions = {}
    for backend in ("inductor", "instrumented", "naive"):
        # A function of its own for each: Dynamo keeps compiled code by code object.
        namespace: dict[str, object] = {}
        exec(compile("def f(x): return x + 1", backend, "exec"), namespace)
        functions[backend] = torch.compile(namespace["f"], backend=backend)  # type: ignore[call-overload]
    x = torch.ones(8, device=device)
    times: dict[str, list[float]] = {backend: [] for backend in functions}
    with torch.no_grad():
        for function in functions.values():
            for _ in range(2000):
                function(x)
        order = list(functions)
        with click.progressbar(range(rounds), label="calls", file=sys.stderr) as bar:
            for _ in bar:
                random.shuffle(order)
                for backend in order:
                    times[backend].append(microseconds_a_call(functions[backend], x))
                if device == "cuda":
                    torch.cuda.synchronize()
    rows = []
    for backend, limit in (("instrumented", 0.4), ("naive", float("inf"))):
        over = [a - b for a, b in zip(times[backend], times["inductor"], strict=True)]
        rows.append(summarise(f"call of 8 elements, {device}: {backend}", over, "us over", limit))
    return rows


def microseconds_a_call(function: Callable[[object], object], x: object, calls: int = 500) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        function(x)
    return (time.perf_counter() - start) / calls * 1e6


# --- Compilations -------------------------------------------------------------------------------


def compilations(device: str, pairs: int, warm: bool) -> list[Row]:
    """Forward and backward of a two-layer GPT, as ratios to Inductor's; Ctrl-C ends it early.

    Wall time, and the CPU seconds of the process and of the compilers that it starts. Both
    backends compile in turn in one process: from one process to the next, times vary by 20 %, far
    more than there is to see. In Inductor's turns our listener is detached.
    """
    import torch
    import torch._dynamo
    from torch._inductor.utils import fresh_cache

    from instrumented_backend.demo import BATCH, LENGTH, SmallGPT
    from instrumented_backend.torch_compat import TRACE_LOGGER

    os.environ["INSTRUMENTED_TABLES"] = "none"
    model = SmallGPT().to(device)
    text = torch.arange(BATCH * LENGTH, device=device).view(BATCH, LENGTH) % 7
    torch.compile(lambda x: x + 1, backend="instrumented")(torch.ones(2, device=device))
    trace = logging.getLogger(TRACE_LOGGER)
    listening = trace.handlers

    def seconds(backend: str) -> tuple[float, float]:
        torch._dynamo.reset()
        trace.handlers = listening if backend == "instrumented" else []
        with contextlib.nullcontext() if warm else fresh_cache():
            start, cpu_start = time.perf_counter(), cpu_seconds()
            torch.compile(model, backend=backend)(text).backward()
            return time.perf_counter() - start, cpu_seconds() - cpu_start

    for backend in ("inductor", "instrumented"):  # fills the caches, imports, starts the pools
        seconds(backend)
    label = "warm compile" if warm else "cold compile"
    ratios = []
    with click.progressbar(range(pairs), label=label, file=sys.stderr) as bar:
        try:
            for _ in bar:
                pair = {name: seconds(name) for name in random.sample(BACKENDS, 2)}
                ratios.append([pair["instrumented"][i] / pair["inductor"][i] for i in range(2)])
        except KeyboardInterrupt:
            click.echo(f"stopped after {len(ratios)} pairs", err=True)
    trace.handlers = listening
    limit = 1.05 if warm else 1.02
    return [
        summarise(f"{label}, {device} ({unit})", [ratio[i] for ratio in ratios], "x", limit)
        for i, unit in enumerate(("wall time", "CPU seconds"))
    ]


def cpu_seconds() -> float:
    """Of this process and of the children that have ended."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


# --- Steps --------------------------------------------------------------------------------------


def steps(device: str, pairs: int, count: int) -> list[Row]:
    """``count`` training steps, and as many once the windows have closed, as ratios to Inductor's.

    ``INSTRUMENTED_OPS`` is the caller's. Each block of ours starts as a run does, with a window.
    """
    import torch
    from workloads import gpt2, net

    os.environ["INSTRUMENTED_TABLES"] = "none"
    from instrumented_backend import backend

    make = net if device == "cuda" else gpt2
    step = {name: make(name, device) for name in BACKENDS}
    session = backend._session

    def seconds(name: str) -> float:
        start = time.perf_counter()
        for _ in range(count):
            step[name]()
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - start

    for name in BACKENDS:
        for _ in range(5):
            step[name]()
    ratios: dict[str, list[float]] = {"whole run": [], "windows closed": []}
    mode = os.environ.get("INSTRUMENTED_OPS", "auto")
    with click.progressbar(range(pairs), label=f"{count} steps", file=sys.stderr) as bar:
        for i in bar:
            found = {}
            for name in BACKENDS[:: 1 if i % 2 else -1]:
                session.reset()  # closes the window; the next opens with a call of ours
                found[name] = seconds(name)
            ratios["whole run"].append(found["instrumented"] / found["inductor"])
            found = {}
            for name in BACKENDS[:: 1 if i % 2 else -1]:
                with session.ops._lock:
                    session.ops._close()
                found[name] = seconds(name)
            ratios["windows closed"].append(found["instrumented"] / found["inductor"])
    observed = backend.report().ops
    click.echo(f"{mode}: {observed.status}, {observed.observed_pct} % of the calls observed")
    whole, closed = (1.05, math.inf) if mode == "always" else (1.01, 1.005)
    return [
        summarise(f"{count} steps, {device}, {mode}: {what}", values, "x", limit)
        for (what, values), limit in zip(ratios.items(), (whole, closed), strict=True)
    ]


# --- Start and end ------------------------------------------------------------------------------

IMPORT = """
    import time, torch
    start = time.perf_counter()
    import instrumented_backend
    print((time.perf_counter() - start) * 1e3)
"""

EXIT = """
    import sys, time, torch, torch._dynamo
    from instrumented_backend import backend
    for i in range(int(sys.argv[1])):
        torch._dynamo.reset()
        torch.compile(lambda x: x + 1, backend="instrumented")(torch.ones(2))
    assert len(backend.report().graphs) == int(sys.argv[1])
    start = time.perf_counter()
    backend._session._exit.run()
    print((time.perf_counter() - start) * 1e3)
"""


# One graph with ten kernels and ten calls of a library, and 999 copies of its module, in which each
# kernel has another name. Compiling a thousand in earnest would take an hour.
EXIT_MANY = """
    import sys, time, torch
    from pathlib import Path
    from instrumented_backend import backend

    class Code:
        def __init__(self, key, source):
            self.cache_key, self.source_code = key, source

    def f(x):
        for i in range(10):
            x = x @ x + i
        return x

    torch.compile(f, backend="instrumented")(torch.ones(8, 8))
    session = backend._session
    source = Path(session.observed_graphs()[0].code[0].path).read_text()
    gm = torch.fx.symbolic_trace(lambda x: x)
    kept = []
    for i in range(1, int(sys.argv[1])):
        kept.append(Code(f"c{i:051d}", source.replace("cpp_fused_", f"cpp_fused_{i}_")))
        path = Path(backend.torch_compat.code_path(kept[-1]))
        path.parent.mkdir(exist_ok=True)
        path.write_text(kept[-1].source_code)
        graph = session.open_graph(gm, (), None, {})
        session._read_code(graph, kept[-1], "forward")
    while sys.argv[2] == "later" and session._reader._pacer is not None:
        time.sleep(0.1)
    start = time.perf_counter()
    session._exit.run()
    milliseconds = (time.perf_counter() - start) * 1e3
    names = {row.kernel_name for row in session.report().kernels if row.language == "cpp"}
    assert len(names) == 10 * int(sys.argv[1]), len(names)
    print(milliseconds)
"""


def start_and_end(repeats: int) -> list[Row]:
    """Milliseconds to import the package after torch, and to report many graphs at the exit."""
    with tempfile.TemporaryDirectory() as folder:
        imports = [float(python(IMPORT, cache=folder)) for _ in range(repeats)]
        reports = f"{folder}/reports"
        exits = [
            float(
                python(
                    EXIT, "100", cache=folder, INSTRUMENTED_TABLES="all", INSTRUMENTED_DIR=reports
                )
            )
            for _ in range(max(3, repeats // 3))
        ]
        many = {
            when: [
                float(
                    python(
                        EXIT_MANY,
                        *("1000", when),
                        cache=folder,
                        INSTRUMENTED_TABLES="all",
                        INSTRUMENTED_DIR=reports,
                    )
                )
                for _ in range(3)
            ]
            for when in ("at once", "later")
        }
    return [
        summarise("import after torch", imports, "ms", 30),
        summarise("exit, 100 graphs, all tables and files", exits, "ms", 100),
        *(
            summarise(f"exit, 1,000 graphs, 10,000 kernels, {when}", values, "ms", 1000)
            for when, values in many.items()
        ),
    ]


# --- Command ------------------------------------------------------------------------------------


@click.command()
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
@click.option("--only", type=click.Choice(["call", "cold", "warm", "steps", "ends"]), multiple=True)
@click.option("--pairs", default=8, show_default=True, help="Pairs of cold compilations.")
@click.option("--rounds", default=400, show_default=True, help="Rounds of 500 calls each.")
@click.option("--json", "json_path", type=Path, help="Write the rows there as well.")
def main(
    device: str, only: tuple[str, ...], pairs: int, rounds: int, json_path: Path | None
) -> None:
    """Measure what the backend costs; exit code 1 if a limit is passed."""
    import torch

    measures: dict[str, Callable[[], list[Row]]] = {
        "call": lambda: tiny_call(device, rounds),
        "cold": lambda: compilations(device, pairs, warm=False),
        "warm": lambda: compilations(device, 4 * pairs, warm=True),
        "steps": lambda: steps(device, pairs, 500 if device == "cuda" else 100),
        "ends": lambda: start_and_end(2 * pairs),
    }
    rows = [row for name in only or measures for row in measures[name]()]
    click.echo(
        tabulate(
            [
                [
                    row.what,
                    f"{row.median:.3f}",
                    f"{row.low_quartile:.3f} .. {row.high_quartile:.3f}",
                    row.unit,
                    row.pairs,
                    f"{row.limit:g}",
                    "ok" if row.ok else "OVER",
                ]
                for row in rows
            ],
            headers=["what", "median", "quartiles", "unit", "pairs", "limit", ""],
        )
    )
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    click.echo(f"torch {torch.__version__}, Python {sys.version.split()[0]}, {name}")
    if json_path is not None:
        json_path.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    sys.exit(not all(row.ok for row in rows))


if __name__ == "__main__":
    main()
