"""The bytes that each kernel moves, by Inductor's own count."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proof.figures import Figure
from proof.models import Training

if TYPE_CHECKING:
    from instrumented_backend.records import KernelRecord

# By name: of each kernel that has it, in any graph.
Bytes = dict[str, list[int]]
_DEFINITION = re.compile(r"^(\w+) = async_compile\.triton\(.*?^'''", re.M | re.S)
_NUM_GB = re.compile(r"'kernel_num_gb': ([0-9.e+-]+)")


def bytes_by_inductor(training: Training, device: str) -> Bytes:
    """Compiles it with plain Inductor and an empty cache, and listens."""
    import os

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

    It counts a buffer once for each node, where one kernel has several: here it counts once.
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
            found[name].append(_bytes_of(V.graph.scheduler, nodes))
        return name

    CppScheduling.define_kernel = define_and_count
    try:
        yield found
    finally:
        CppScheduling.define_kernel = define


def _bytes_of(scheduler: Any, nodes: Iterable[Any]) -> int:
    chosen = {node.get_name() for node in nodes}
    accesses: dict[str, int] = {}
    for node in scheduler.nodes:
        if chosen.isdisjoint(part.get_name() for part in node.get_nodes()):
            continue
        counts = node.get_read_write_buffer_accesses(include_reads=True, include_writes=True)
        for buffer, count in counts.items():
            accesses[buffer] = max(count, accesses.get(buffer, 0))
    return sum(accesses.values())


def bytes_rows(
    model: str, cache: str, kernels: list["KernelRecord"], inductors: Bytes
) -> Iterator[Figure]:
    """The sum over the generated kernels, and for how many of them the two are the same."""
    ours: dict[str, list[int | None]] = defaultdict(list)
    for kernel in kernels:
        if kernel.kernel_name in inductors:
            ours[kernel.kernel_name].append(kernel.total_bytes)
    known = [count for counts in ours.values() for count in counts if count is not None]
    same = sum(
        sorted(counts, key=str) == sorted(inductors[name], key=str) for name, counts in ours.items()
    )
    total = sum(map(sum, inductors.values()))
    yield Figure(model, "bytes of all kernels", cache, sum(known), total, 5)
    yield Figure(model, "kernels with Inductor's bytes", cache, same, len(inductors), 10)
