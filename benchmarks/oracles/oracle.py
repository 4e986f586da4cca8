"""What a program's graphs dispatch, by torch.profiler: Dynamo's graphs, run op by op."""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import torch

# PyTorch's own wrappers, as the design names them.
WRAPPERS = (
    "Torch-Compiled Region",
    "TorchDynamo Cache Lookup",
    "Pregraph bytecode",
    "AOTDispatcher Runtime Wrapper Prologue",
    "## Call CompiledFxGraph",
    "CompiledFunction",
    "ProfilerStep",
)
NODE = "autograd::engine::evaluate_function: "
# Calls of CUDA's runtime and driver, which Kineto has among the ops. Some have no name.
_RUNTIME = re.compile(r"cu(da)?[A-Z]|INVALID$")
USER_SCOPE = 7


@dataclass
class Profiled:
    """The outermost ops, by name, inside ``TORCHDYNAMO`` regions and outside; autograd's apart."""

    inside: Counter[str]
    outside: Counter[str]
    nodes: Counter[str]

    @property
    def backward(self) -> int:
        return self.nodes.total() - self.nodes["torch::autograd::AccumulateGrad"]


def is_no_op(name: str) -> bool:
    """One of PyTorch's wrappers, or a call of CUDA's."""
    return name.startswith(WRAPPERS) or _RUNTIME.match(name) is not None


def profile(run: Callable[[], object]) -> Profiled:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        run()
    events = sorted(
        profiler.profiler.kineto_results.events(),
        key=lambda event: (event.start_thread_id(), event.start_ns(), -event.duration_ns()),
    )
    found = Profiled(Counter(), Counter(), Counter())
    op_end: dict[int, int] = {}
    region_end: dict[int, int] = {}
    for event in events:
        thread, name = event.start_thread_id(), event.name()
        start, end = event.start_ns(), event.start_ns() + event.duration_ns()
        if name == "TORCHDYNAMO":
            region_end[thread] = end
        if (
            is_no_op(name.removeprefix(NODE))
            or event.scope() == USER_SCOPE
            or start < op_end.get(thread, 0)
        ):
            continue
        op_end[thread] = end
        if name.startswith(NODE):
            found.nodes[name.removeprefix(NODE)] += 1
        elif start < region_end.get(thread, 0):
            found.inside[name] += 1
        else:
            found.outside[name] += 1
    return found


def run_in_region(
    gm: torch.fx.GraphModule, _: object, mode: str | None = None
) -> Callable[..., object]:
    """A Dynamo backend: the graph as it is, in a region of the name that ours has."""

    def call(*args: object) -> object:
        with torch.profiler.record_function("TORCHDYNAMO"):
            return gm.forward(*args)

    return call
