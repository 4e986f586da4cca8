"""The bytes that each kernel moves, by Inductor's own count."""

import math
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proof.figures import Figure
from proof.models import Training

if TYPE_CHECKING:
    from instrumented_backend.records import KernelRecord

TOLERANCE = 0.05
# By name: of each kernel that has it, in any graph.
Bytes = dict[str, list[int]]
_DEFINITION = re.compile(r"^(\w+) = async_compile\.triton\(.*?^'''", re.M | re.S)
_NUM_GB = re.compile(r"'kernel_num_gb': ([0-9.e+-]+)")


def bytes_by_inductor(training: Training, device: str) -> Bytes:
    """Compiles it with plain Inductor and an empty cache, and listens."""
    import torch
    from torch._inductor import config
    from torch._inductor.utils import fresh_cache

    torch._dynamo.reset()
    compiled = torch.compile(training.model, backend="inductor")
    with fresh_cache():
        if device == "cpu":
            with _counting_nodes() as found:
                training.step(compiled)
            return found
        with config.patch(benchmark_kernel=True):
            training.step(compiled)
        modules = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).glob("*/*.py")
        return num_gb_in(path.read_text() for path in modules)


def num_gb_in(modules: Iterable[str]) -> Bytes:
    """Inductor's ``kernel_num_gb`` in modules of graphs (Triton, ``config.benchmark_kernel``)."""
    found: Bytes = defaultdict(list)
    for text in modules:
        if "async_compile.wait(" not in text:
            continue  # a kernel's own module, which repeats its definition
        for definition in _DEFINITION.finditer(text):
            gb = _NUM_GB.search(definition[0])
            if gb is not None:
                found[definition[1]].append(round(float(gb[1]) * 1e9))
    return found


@contextmanager
def _counting_nodes() -> Iterator[Bytes]:
    """For C++ kernels: the scheduler's count for the nodes that each was generated from.

    Where a kernel has several, a buffer counts for each of them, but at most whole.
    """
    from torch._inductor.codegen.cpp import CppScheduling
    from torch._inductor.virtualized import V

    found: Bytes = defaultdict(list)
    seen: list[tuple[Any, str]] = []
    define = CppScheduling.define_kernel

    def define_and_count(self: Any, src_code: str, nodes: Any, kernel_args: Any = None) -> str:
        name: str = define(self, src_code, nodes, kernel_args)
        if not any(graph is V.graph and name == other for graph, other in seen):
            seen.append((V.graph, name))
            found[name].append(_bytes_of(V.graph, nodes))
        return name

    CppScheduling.define_kernel = define_and_count
    try:
        yield found
    finally:
        CppScheduling.define_kernel = define


def _bytes_of(graph: Any, nodes: Iterable[Any]) -> int:
    """Of all the scheduler's nodes that are in one kernel: a buffer at most whole."""
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
