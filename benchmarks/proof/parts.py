"""What single parts of the backend cost, each measured alone: native calls, notes, parsing."""

import functools
import statistics
import sys
import tarfile
import time
import timeit
import types
from collections.abc import Callable, Iterator
from typing import Any

import click

from proof.figures import Cost, cost_of
from proof.seeing import seeing_an_op, seeing_an_op_error
from proof.utilization import DATA

CALLS = 20_000
FEW_CALLS, TURNS = 500, 20
LEAST_OF = 10  # timings of a pair: what else the machine does makes a call longer, never shorter
MODULES = 1000
GRAPHS, LIMIT_S = 1000, 0.2
NODES, DEPTH = 1000, 12  # calls of a graph, and frames above each


def parts(pairs: int) -> list[Cost]:
    """Each row is the median over as many measurements as there are pairs."""
    measures: tuple[tuple[str, Callable[[], float], str, float], ...] = (
        ("call through the native counter", counted_call, "ns over", 150),
        ("call of a C++ kernel through its timer", timed_call, "ns over", 100),
        ("call of a function of PyTorch's, counted", called_function, "ns over", 100),
        ("note of a graph with 15 kernels", note, "us", 200),
        (f"lines of a graph, of {NODES:,} nodes", lines_of_a_graph, "us a node", 100),
        ("line of an eager op that is sampled", line_of_an_op, "us", 10),
        ("seeing an op of a loop", seeing_an_op, "us", 4),
        ("ops of a loop by slices of it: off by", seeing_an_op_error, "%", 5),
        (f"parsing {MODULES:,} kernels' modules", parsing, "CPU s", 1.0),
        (f"reading {GRAPHS:,} graphs at the exit, at most {LIMIT_S:g} s", reading, "s", 0.8),
    )
    turns = [measure for measure in measures for _ in range(pairs)]
    values: dict[str, list[float]] = {}
    with click.progressbar(turns, label="parts", file=sys.stderr) as bar:
        for what, measure, *_ in bar:
            values.setdefault(what, []).append(measure())
    return [cost_of(what, values[what], unit, limit) for what, _, unit, limit in measures]


def counted_call() -> float:
    """A graph's call, as nobody watches it."""
    from instrumented_backend.observe.failures import Failures
    from instrumented_backend.observe.graphs.calls import CallCounter, GraphCalls
    from instrumented_backend.observe.native import build as native
    from instrumented_backend.observe.native.gate import Gate

    calls = GraphCalls(Gate(), Failures())
    calls._native = native.load_graph_call()
    graph: Any = types.SimpleNamespace(started=True)
    return _ns_over(calls.counted(len, len, CallCounter(), graph, 1))


def timed_call() -> float:
    """Of the calls after the first thousand, of which a quarter is timed."""
    from instrumented_backend.observe.native import build as native

    timer = native.load_kernel_timer().Timer(len)
    for _ in range(1000):
        timer("")
    return _ns_over(timer)


def called_function() -> float:
    """By how much longer small ops take, on average over functions called in several ways."""
    import torch

    from instrumented_backend.observe.native import build as native
    from instrumented_backend.observe.ops.called import count_calls

    lib = native.load()
    x = torch.ones(8)
    ways: tuple[Callable[[], object], ...] = (
        lambda: x * 2,
        lambda: x.view(-1),
        lambda: x.exp(),
        lambda: torch.add(x, 2),
        lambda: torch.nn.functional.relu(x),
    )

    def ns(way: Callable[[], object]) -> float:
        return 1e9 * min(timeit.repeat(way, number=FEW_CALLS, repeat=LEAST_OF)) / FEW_CALLS

    longer = []
    for way in ways:
        turns = []
        for turn in range(TURNS):
            taken = {}
            for is_counted in (turn % 2 == 0, turn % 2 == 1):
                if is_counted:
                    count_calls(lib)
                else:
                    lib.op_meter_uncount_calls()
                taken[is_counted] = ns(way)
            turns.append(taken[True] - taken[False])
        longer.append(statistics.median(turns))
    lib.op_meter_uncount_calls()
    return statistics.mean(longer)


def _ns_over(call: Any) -> float:
    """What ``call`` takes for ``len("")`` beyond ``len("")`` itself."""

    def ns(function: Any) -> float:
        seconds = timeit.repeat("f('')", globals={"f": function}, number=CALLS, repeat=LEAST_OF)
        return 1e9 * min(seconds) / CALLS

    return ns(call) - ns(len)


def note() -> float:
    """What is done for a graph's code on the thread that compiles."""
    from instrumented_backend.observe.code.generated import GeneratedCode

    graph = _graph()
    return 1e6 * min(
        timeit.repeat(
            lambda: GeneratedCode(graph, "/cache/ab/cab.py", "forward"), number=1, repeat=50
        )
    )


def lines_of_a_graph() -> float:
    """As Dynamo hands it over, and once more as Inductor gets it, no two lines the same."""
    import torch

    from instrumented_backend.observe.code.node_lines import (
        NodeLines,
        line_of_stack,
        lines_of_nodes,
    )

    graph = torch.fx.Graph()
    value = graph.placeholder("x")
    for number in range(NODES):
        value = graph.call_function(torch.relu, (value,))
        value.meta["stack_trace"] = "".join(
            f'  File "/home/me/model/layers.py", line {10 * number + depth}, in forward\n'
            "    hidden = self.attention(hidden, mask=mask)\n"
            for depth in range(DEPTH)
        )
    graph.output(value)
    gm = torch.fx.GraphModule(torch.nn.Module(), graph)

    def both() -> None:
        line_of_stack.cache_clear()
        NodeLines(gm)
        line_of_stack.cache_clear()
        lines_of_nodes(gm.graph.nodes)

    return 1e6 * min(timeit.repeat(both, number=1, repeat=LEAST_OF)) / NODES


def line_of_an_op() -> float:
    """Of the sampling alone, called from a line of the program's."""
    from instrumented_backend.observe.failures import Failures
    from instrumented_backend.observe.ops.lines import Lines

    lines = Lines(Failures(), print_missing=False)
    start = time.perf_counter()
    for _ in range(CALLS):
        lines.sample(b"aten::add")
    return 1e6 * (time.perf_counter() - start) / CALLS


def parsing() -> float:
    """Of modules with distinct texts. The limit makes ten thousand take ten seconds."""
    from instrumented_backend.kernels.parse import parse_module

    texts = [text for name, text in _recorded().items() if ".kernel" in name]
    distinct = [
        texts[number % len(texts)].replace("tmp0", f"tmp0{number}") for number in range(MODULES)
    ]
    start = time.process_time()
    for text in distinct:
        parse_module(text)
    return time.process_time() - start


def reading() -> float:
    """Until the exit goes on, with more to parse than its limit has time for."""
    from instrumented_backend.observe.code.generated import GeneratedCode, KernelReader
    from instrumented_backend.observe.failures import Failures

    reader = KernelReader(Failures(), meanwhile=False, compiling_s=lambda: 0.0)
    graphs = [_graph() for _ in range(GRAPHS)]
    codes = [GeneratedCode(graph, "/cache/ab/cab.py", "forward") for graph in graphs]
    start = time.monotonic()
    left = reader.finish(codes, limit_s=LIMIT_S)
    seconds = time.monotonic() - start
    if not left:
        raise click.ClickException("all graphs were parsed: the limit was not met")
    return seconds


class _Compiled(types.SimpleNamespace):
    """What is used of Inductor's ``CompiledFxGraph``, weak references included."""


def _graph() -> Any:
    return _Compiled(source_code=_recorded()["plain/conv_bn.graph1.py"])


@functools.cache
def _recorded() -> dict[str, str]:
    """The generated modules among the tests' data that were compiled with the usual settings."""

    def texts() -> Iterator[tuple[str, str]]:
        with tarfile.open(DATA / "kernels.tar.xz") as archive:
            for member in archive:
                file = archive.extractfile(member)
                if member.name.startswith("plain/") and file is not None:
                    yield member.name, file.read().decode()

    return dict(texts())
