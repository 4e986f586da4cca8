"""A loaded graph module: arguments for its ``call``, the time of a call, a profile of some."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch

from instrumented_backend.bench import stand_ins
from instrumented_backend.bench.arguments import in_range, input_bounds, names_in_order
from instrumented_backend.bench.profile_report import profile_calls
from instrumented_backend.bench.timing import measure, synchronize
from instrumented_backend.kernels.parse import GraphSource
from instrumented_backend.records.bench import Timing
from instrumented_backend.torch_compat import hooks, inductor


class NoArguments(RuntimeError):
    """The module does not say what its inputs are like."""


def graph_arguments(module: ModuleType, source: GraphSource, text: str) -> list[Any]:
    """Random inputs of the shapes and strides in the module's own harness; raises `NoArguments`."""
    if not hasattr(module, "get_args"):
        raise NoArguments(
            "the module has no get_args, which tells its inputs' shapes: it was compiled with "
            "benchmark_harness off"
        )
    with patched_rand_strided(in_range(names_in_order(text), input_bounds(source))):
        return list(module.get_args())


@contextmanager
def patched_rand_strided(replacement: Any, module: ModuleType | None = None) -> Iterator[None]:
    """Generated code imports ``rand_strided`` when it is called, or has it as a global."""
    undos = [inductor.patch_rand_strided(replacement)]
    if module is not None and hasattr(module, "rand_strided"):
        undos.append(hooks.replace_attribute(module, "rand_strided", replacement))
    try:
        yield
    finally:
        hooks.together(undos)()


def time_call(module: ModuleType, arguments: list[Any], device: str) -> Timing:
    """The compiled call as a program sees it; on a GPU until the device has finished."""

    def call() -> None:
        module.call(list(arguments))
        synchronize(device)

    return measure(call, "cpu")


def profile_graph(
    name: str, module: ModuleType, source: GraphSource, arguments: list[Any], device: str
) -> None:
    """Print the profile report of some calls; C++ kernels get spans of their own."""
    with cpp_spans(module, source):
        profile_calls(name, lambda: module.call(list(arguments)), device)


@contextmanager
def cpp_spans(module: ModuleType, source: GraphSource) -> Iterator[None]:
    """Give the C++ kernels of a module spans in a profile, as Triton's have."""

    def launched(kernel_name: str, kernel: Any, function: Any, args: Any, kwargs: Any) -> Any:
        if source.languages.get(kernel_name) != "cpp":
            return function(*args, **kwargs)
        with torch.profiler.record_function(kernel_name):
            return function(*args, **kwargs)

    cpp = [kernel for kernel, language in source.languages.items() if language == "cpp"]
    undo = stand_ins.install(module, cpp, launched)
    try:
        yield
    finally:
        undo()
