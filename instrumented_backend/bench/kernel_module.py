"""A kernel's own module, without the graph that launches it."""

from types import ModuleType
from typing import Any

import torch

from instrumented_backend.bench.arguments import random_strided
from instrumented_backend.bench.autotuner import get_triton_kernel
from instrumented_backend.bench.graph import patched_rand_strided
from instrumented_backend.bench.targets import why_not_alone
from instrumented_backend.bench.timing import measure_kernel, synchronize
from instrumented_backend.bench.triton_configs import config_records, describe_chosen
from instrumented_backend.bench.walk import changed_inputs, reason
from instrumented_backend.kernels.complete import add_launch, add_no_launch
from instrumented_backend.kernels.facts import KernelFacts
from instrumented_backend.kernels.index_bounds import index_bounds
from instrumented_backend.kernels.reach import reach
from instrumented_backend.kernels.triton import read_triton
from instrumented_backend.kernels.wrapper import KernelCall, Size, Tensor
from instrumented_backend.records.bench import BenchRecord


class NotAlone(RuntimeError):
    """The module does not say enough to launch its kernel."""


def bench_kernel_module(
    module: ModuleType, text: str, device: str, all_configs: bool, min_seconds: float = 0.2
) -> list[BenchRecord]:
    """Time the kernel with arguments from its ``get_args``, or from its own index arithmetic."""
    facts = read_triton(text)
    record = BenchRecord(facts.record)
    try:
        kernel = get_triton_kernel(module)
        args = kernel_arguments(module, text, facts, device)
        _describe(facts, args)
        saved = [(tensor, tensor.clone()) for tensor in changed_inputs(facts, kernel, args)]

        def restore() -> None:
            for tensor, before in saved:
                tensor.copy_(before)

        undo = restore if saved else None
        stream: dict[str, Any] = {"stream": raw_stream(device)}
        configs: list[BenchRecord] = []
        if all_configs:
            configs = config_records(record, kernel, args, stream, device, undo, min_seconds)
        measure_kernel(record, lambda: kernel.run(*args, **stream), device, undo, min_seconds)
        synchronize(device)
        return describe_chosen(record, configs, kernel)
    except NotAlone as error:
        record.error = str(error)
    except Exception as error:  # one row says it
        record.error = reason(error)
    return [record]


def raw_stream(device: str) -> Any:
    """What Inductor passes to a kernel as ``stream``."""
    if device == "cpu":
        return 0
    return getattr(torch, device).current_stream().cuda_stream


def kernel_arguments(
    module: ModuleType, text: str, facts: KernelFacts, device: str
) -> tuple[Any, ...]:
    """What to launch the kernel with. Raises `NotAlone`."""
    if hasattr(module, "get_args"):
        return _own_arguments(module, text, facts)
    record = facts.record
    error = why_not_alone(record, text)
    if error is not None:
        raise NotAlone(error)
    hints = dict(_hints(record.size_hints))
    found = reach(text, record.kernel_name, list(facts.accesses), hints)
    args: list[Any] = []
    for name in facts.parameters:
        dtype = record.arg_dtypes.get(name, "")
        if name in found.numels:
            args.append(found.numels[name])
        elif name in facts.accesses:
            count = found.elements.get(name, 0)
            if count is None:
                raise NotAlone(f"its module does not tell how large the buffer of {name} is")
            bound = found.index_values.get(name)
            args.append(
                random_strided((max(count, 1),), (1,), getattr(torch, dtype), device, bound=bound)
            )
        else:
            raise NotAlone(f"its module does not tell what {name} is: its graph's module does")
    return tuple(args)


def _own_arguments(module: ModuleType, text: str, facts: KernelFacts) -> tuple[Any, ...]:
    bounds = index_bounds(text, facts.accesses)
    remaining = iter(facts.accesses)

    def rand_strided(*args: Any, **kwargs: Any) -> torch.Tensor:
        known = [bound.values({}) for bound in bounds.get(next(remaining, ""), [])]
        counts = [count for count in known if count is not None]
        return random_strided(*args, **kwargs, bound=min(counts, default=None))

    with patched_rand_strided(rand_strided, module):
        return tuple(module.get_args())


def _hints(size_hints: Any) -> list[tuple[str, int]]:
    """``{"x": 4096, "r0_": 8}`` → numels; older modules have a list, for x and r."""
    if isinstance(size_hints, dict):
        items = list(size_hints.items())
    else:
        items = list(zip(("x", "y", "z"), size_hints or (), strict=False))
    return [(f"{key}numel", value) for key, value in items if type(value) is int]


def _describe(facts: KernelFacts, args: tuple[Any, ...]) -> None:
    """Shapes, bytes and the rest, from the arguments."""
    values: list[Any] = [
        Tensor(
            "",
            tuple(Size(str(n), n) for n in arg.shape),
            str(arg.dtype).removeprefix("torch."),
        )
        if isinstance(arg, torch.Tensor)
        else Size(str(arg), arg)
        if type(arg) is int
        else None
        for arg in args
    ]
    add_launch(facts, KernelCall(facts.record.kernel_name, values, {}, None, None))
    if facts.record.total_bytes is None:
        add_no_launch(facts.record)
