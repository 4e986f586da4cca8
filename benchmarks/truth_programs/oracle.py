"""A program's truth by torch.profiler: what its parts dispatch.

Two runs in one process, none with our package: Inductor, each graph in a region, which gives the
eager ops; and Dynamo's graphs op by op, which gives the captured ones.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from oracles.oracle import NODE, USER_SCOPE, is_no_op, run_in_region
from proof.naive import record_function

from truth_programs.run import FIRST, Run

FEW = 12  # turns of each loop in a run of these
EVERY = 7  # of the times that a part runs after its first, each so many-th is counted, up to
MOST = 9
GRAPH = "TORCHDYNAMO"
REGIONS = (GRAPH, "## Call CompiledFxGraph")
IN_GRAPHS = "ops in graphs"
COMPILATIONS = ("dynamo", "entire_backward_compile")
RUNS = [FEW, FEW]  # the turns of those of `counted`

Counts = dict[str, int]


class Unsteady(Exception):
    """A part that is not the same each time has no oracle."""


class PartCounts:
    """Profiles some of the times that each part runs, one part at a time."""

    def __init__(self, count: Callable[[list[Any]], Counter[str]]) -> None:
        self._count = count
        self._one_at_a_time = Lock()
        self.counted: dict[str, list[tuple[int, Counter[str]]]] = defaultdict(list)

    @contextmanager
    def watch(self, name: str, number: int) -> Iterator[None]:
        import torch

        found = self.counted[name]
        with self._one_at_a_time:
            if number >= FIRST and (number % EVERY or len(found) >= MOST):
                yield
                return
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as p:
                yield
            found.append((number, self._count(p.profiler.kineto_results.events())))

    def of_parts(self) -> dict[str, list[Counts]]:
        """Of each part its first times, and last what each later one does."""
        answer: dict[str, list[Counts]] = {}
        for name, counted in self.counted.items():
            counts = [dict(counter) for _, counter in counted]
            steady = counts[FIRST - 1 :]
            if any(count != steady[0] for count in steady):
                raise Unsteady(f"{name}: {[(n, dict(c)) for n, c in counted[FIRST - 1 :]]}")
            answer[name] = counts[:FIRST]
        return answer


def eager_ops(events: list[Any]) -> Counter[str]:
    """By name, nodes with autograd's prefix: outside the regions and outside compilations."""
    return _outermost(events, REGIONS)[0]


def graph_ops(events: list[Any]) -> Counter[str]:
    """Where graphs run op by op: the ops in them, all under one name, and all nodes."""
    outside, inside = _outermost(events, ())
    nodes = {name: count for name, count in outside.items() if name.startswith(NODE)}
    return Counter({IN_GRAPHS: inside, **nodes})


def _outermost(events: list[Any], regions: tuple[str, ...]) -> tuple[Counter[str], int]:
    """Ops that are in none of the ``regions``; how many of them are in a graph nevertheless."""
    events = sorted(events, key=lambda e: (e.start_thread_id(), e.start_ns(), -e.duration_ns()))
    found: Counter[str] = Counter()
    in_graphs = 0
    until: dict[int, int] = {}  # by thread, of the op, region or compilation under way
    graph_until: dict[int, int] = {}
    for event in events:
        thread, start, name = event.start_thread_id(), event.start_ns(), event.name()
        if name == GRAPH:
            graph_until[thread] = start + event.duration_ns()
        if start < until.get(thread, 0):
            continue
        is_compilation = name.endswith("(dynamo_timed)") or name.startswith(COMPILATIONS)
        if not is_compilation and not name.startswith(regions):
            op = name.removeprefix(NODE)
            if is_no_op(op) or event.scope() == USER_SCOPE:
                continue
            found[name] += 1
            in_graphs += start < graph_until.get(thread, 0)
        until[thread] = start + event.duration_ns()
    return found, in_graphs


Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


def inductor(wrap: Wrap) -> Callable[..., Any]:
    """A backend: Inductor, and ``wrap`` of what it makes of each graph, forward and backward."""

    def compile_graph(gm: Any, inputs: list[Any], mode: str | None = None) -> Callable[..., Any]:
        import torch
        from torch._inductor.compile_fx import compile_fx, compile_fx_inner

        def inner(*arguments: Any, **inner_options: Any) -> Any:
            compiled = compile_fx_inner(*arguments, **inner_options)
            return _wrapped(compiled) if inner_options.get("is_backward") else compiled

        patches = None if mode is None else torch._inductor.list_mode_options(mode)
        return _wrapped(compile_fx(gm, inputs, inner, patches))

    def _wrapped(compiled: Callable[..., Any]) -> Callable[..., Any]:
        call: Any = wrap(compiled)
        if hasattr(compiled, "_boxed_call"):
            call._boxed_call = True
        return call

    return compile_graph


def counted(name: str, device: str) -> dict[str, Any]:
    """In a process of its own: by part, its "eager" ops, and what there is to know of "graphs"."""
    import torch

    from truth_programs.catalogue import ALL

    torch.set_num_threads(1)
    answer: dict[str, Any] = {}
    for what, backend, count in (
        ("eager", record_function, eager_ops),
        ("graphs", run_in_region, graph_ops),
    ):
        torch._dynamo.reset()
        counts = PartCounts(count)
        ALL[name](Run(device, backend, few=FEW, watch=counts.watch))
        answer[what] = counts.of_parts()
    return answer


def eager_of(known: dict[str, Any], times: dict[str, int]) -> Counter[str]:
    """By name, as reports have it, in a run in which each part ran so many times."""
    found: Counter[str] = Counter()
    for name, count in _total(known["eager"], times).items():
        found[name.removeprefix(NODE)] += count
    return found


def captured_of(known: dict[str, Any], times: dict[str, int]) -> int:
    """The ops in graphs, and the nodes that are not there when the graphs are compiled."""
    graphs, eager = _total(known["graphs"], times), _total(known["eager"], times)
    return graphs.total() - sum(n for name, n in eager.items() if name.startswith(NODE))


def _total(parts: dict[str, list[Counts]], times: dict[str, int]) -> Counter[str]:
    """Of a whole run, in which each part ran so many times."""
    found: Counter[str] = Counter()
    for name, count in times.items():
        counts = parts[name]
        for number in range(min(count, len(counts))):
            found.update(counts[number])
        later = count - len(counts)
        if later > 0:
            found.update({op: later * each for op, each in counts[-1].items()})
    return found
