"""The bytes that each kernel moves, by Inductor's own count."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from proof.figures import Figure
from proof.models import Training

if TYPE_CHECKING:
    from instrumented_backend.records import KernelRecord

TOLERANCE = 0.05
# By name: of each kernel that has it, in any graph.
Bytes = dict[str, list[int]]


def bytes_by_inductor(training: Training, device: str) -> Bytes:
    """Compiles it with plain Inductor and an empty cache, and listens."""
    import torch
    from torch._inductor.utils import fresh_cache

    torch._dynamo.reset()
    compiled = torch.compile(training.model, backend="inductor")
    with fresh_cache(), counting(device) as found:
        training.step(compiled)
    return found


@contextmanager
def counting(device: str) -> Iterator[Bytes]:
    """Listens to Inductor define its kernels on this thread.

    For Triton kernels it is what ``config.benchmark_kernel`` writes to ``kernel_num_gb``; that
    itself would change which kernels are one, and so the names. For C++ kernels it is the
    scheduler's count for the nodes that each was generated from.
    """
    from torch._inductor.codegen.cpp import CppScheduling
    from torch._inductor.codegen.triton import TritonScheduling
    from torch._inductor.virtualized import V

    found: Bytes = defaultdict(list)
    seen: list[tuple[Any, str]] = []
    scheduling = TritonScheduling if device == "cuda" else CppScheduling
    define = scheduling.define_kernel

    def define_and_count(self: Any, src_code: str, nodes: Any, kernel: Any = None) -> str:
        name: str = define(self, src_code, nodes, kernel)
        if not any(graph is V.graph and name == other for graph, other in seen):
            seen.append((V.graph, name))
            found[name].append(
                round(kernel.estimate_kernel_num_bytes())
                if device == "cuda"
                else _bytes_of(V.graph, nodes)
            )
        return name

    scheduling.define_kernel = define_and_count
    try:
        yield found
    finally:
        scheduling.define_kernel = define


def _bytes_of(graph: Any, nodes: Iterable[Any]) -> int:
    """Of all the scheduler's nodes that are in one kernel.

    A buffer counts for each of them that accesses it, but at most whole.
    """
    chosen = {node.get_name() for node in nodes}
    accesses: Counter[str] = Counter()
    for node in graph.scheduler.nodes:
        if not chosen.isdisjoint(part.get_name() for part in node.get_nodes()):
            accesses.update(
                node.get_read_write_buffer_accesses(include_reads=True, include_writes=True)
            )
    return sum(min(count, _size_of(graph, buffer)) for buffer, count in accesses.items())


def _size_of(graph: Any, buffer: str) -> float:
    """Bytes; the shapes of these models are static. A buffer of several tensors has no size."""
    node = graph.name_to_buffer.get(buffer) or graph.graph_inputs[buffer]
    size = node.maybe_get_size()
    return math.inf if size is None else math.prod(map(int, size)) * node.get_dtype().itemsize


def bytes_rows(
    model: str, cache: str, kernels: list["KernelRecord"], inductors: Bytes
) -> Iterator[Figure]:
    """The sum over the generated kernels, and for how many names of them the two agree.

    Limit: 10 % of the sum; 90 % of the kernels within 5 %. Ours are estimates for C++ kernels, and
    differ where one fills a buffer and then adds to it (the backward of an embedding, of
    max-pooling): that is two buffers to Inductor's scheduler, and one to us.
    """
    ours: dict[str, list[int]] = defaultdict(list)
    for kernel in kernels:
        if kernel.kernel_name in inductors and kernel.total_bytes is not None:
            ours[kernel.kernel_name].append(kernel.total_bytes)
    total, true_total = (sum(map(sum, counts.values())) for counts in (ours, inductors))
    alike = sum(
        len(ours[name]) == len(counts)
        and all(
            abs(mine - true) <= TOLERANCE * true
            for mine, true in zip(sorted(ours[name]), sorted(counts), strict=True)
        )
        for name, counts in inductors.items()
    )
    yield Figure(model, "bytes of all kernels", cache, total, true_total, 10)
    yield Figure(model, "kernels within 5 % in bytes", cache, alike, len(inductors), 10)
