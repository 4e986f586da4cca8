"""One operator with one set of inputs: made, compiled, compared, timed."""

import functools
import operator
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
from torch._dynamo.backends.registry import lookup_backend
from torch._subclasses.fake_tensor import FakeTensorMode

import instrumented_backend
from opbench import accuracy, tensors
from opbench.input_log import Inputs, TensorSpec, parse_inputs
from opbench.operators import DATA_DEPENDENT, find_operator, is_random
from opbench.results import FAILED, SKIPPED, Kernel, Sample
from opbench.task import Settings, Task
from opbench.timing import add_times_outside, time_all

EAGER = "eager"
INSTRUMENTED = "instrumented"
_MEMORY_SHARE = 0.8  # of what is free


def measure(task: Task, settings: Settings) -> Sample:
    """Never raises for the sample's sake: a failure is a record with its reason."""
    start = time.perf_counter()
    try:
        sample = _measure(task, settings)
    except tensors.CannotMake as error:
        sample = task.record(SKIPPED, str(error))
    except torch.cuda.OutOfMemoryError as error:
        sample = task.record(FAILED, f"out of memory: {_one_line(error)}")
    except Exception as error:  # whatever an operator or a compiler raises costs this sample alone
        sample = task.record(FAILED, f"{type(error).__name__}: {_one_line(error)}")
    finally:
        torch._dynamo.reset()
    sample.seconds = time.perf_counter() - start
    return sample


def _measure(task: Task, settings: Settings) -> Sample:
    op = find_operator(task.operator)
    inputs = parse_inputs(task.inputs)
    dtype = getattr(torch, settings.dtype)
    converted = tensors.convert(op, inputs, dtype)
    notes: list[str] = []
    if op._opname == "index" and _has_mask(converted):
        return task.record(SKIPPED, DATA_DEPENDENT)
    needed, free = _bytes_needed(op, converted, settings, notes), _bytes_free(settings.device)
    if needed > _MEMORY_SHARE * free:
        return task.record(
            SKIPPED, f"would take about {needed / 1e9:.3g} GB, {free / 1e9:.3g} GB are free"
        )
    args, kwargs = tensors.make_arguments(op, inputs, dtype, settings.device)
    if settings.channels_last:
        args, kwargs = tensors.to_channels_last((args, kwargs))
    sample = Sample(task.operator, task.sample, task.inputs, task.count, notes=notes)
    with torch.no_grad():
        functions = _functions(op, args, kwargs, settings, sample)
        if settings.accuracy_checking:
            sample.accuracy = _accuracy(op, functions, args, kwargs)
        timed = {name: bind(args, kwargs) for name, bind in functions.items()}
        sample.backends = time_all(timed, settings.repeats, settings.device)
        if settings.device == "cuda":
            add_times_outside(timed, sample.backends, settings.device)
    return sample


def _has_mask(inputs: Inputs) -> bool:
    return any(spec.dtype in ("b8", "u8") for spec in list(tensors.specs(inputs))[1:])


# From arguments to a call of the operator with them: nothing but that call is to be timed.
Bind = Callable[[tuple[Any, ...], dict[str, Any]], Callable[[], Any]]


def _functions(
    op: torch._ops.OpOverload,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    settings: Settings,
    sample: Sample,
) -> dict[str, Bind]:
    """Each backend's function; the figures of the compiled kernels go into the sample."""
    example = tensors.clone((args, kwargs))
    result = op(*example[0], **example[1])
    _describe_arguments(sample, args, kwargs, result)
    functions: dict[str, Bind] = {}
    for name in settings.backends:
        if name == EAGER:
            functions[name] = lambda args, kwargs: functools.partial(op, *args, **kwargs)
            continue
        gm, inputs = operator_graph(op, args, kwargs, result)
        instrumented_backend.reset()
        compiled = lookup_backend(name)(gm, inputs)
        functions[name] = _binding(compiled)
        functions[name](*tensors.clone((args, kwargs)))()  # compiles what was left for the call
        if name == INSTRUMENTED:
            _describe_kernels(sample)
    if INSTRUMENTED not in functions:
        sample.notes.append(f"kernels unknown: {INSTRUMENTED} is not among the backends")
    return functions


def _binding(compiled: Callable[..., Any]) -> Bind:
    return lambda args, kwargs: functools.partial(compiled, *tensors.tensors_in((args, kwargs)))


def operator_graph(
    op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> tuple[torch.fx.GraphModule, list[torch.Tensor]]:
    """A graph of the one call, and its inputs; its outputs are the tensors in ``result``."""
    graph = torch.fx.Graph()
    inputs: list[torch.Tensor] = []

    def placeholder(tensor: torch.Tensor) -> torch.fx.Node:
        inputs.append(tensor)
        return graph.placeholder(f"arg{len(inputs)}")

    node_args, node_kwargs = tensors.map_tensors(placeholder, (args, kwargs))
    node = graph.call_function(op, node_args, node_kwargs)
    graph.output(tuple(_outputs(graph, node, result)))
    return torch.fx.GraphModule({}, graph), inputs


def _outputs(graph: torch.fx.Graph, node: torch.fx.Node, result: Any) -> list[torch.fx.Node]:
    if isinstance(result, torch.Tensor):
        return [node]
    if not isinstance(result, list | tuple):
        return []
    found = []
    for place, item in enumerate(result):
        if item is not None:
            found += _outputs(graph, graph.call_function(operator.getitem, (node, place)), item)
    return found


# --- Figures that are not times -----------------------------------------------------------------


def _describe_arguments(
    sample: Sample, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> None:
    given, made = tensors.tensors_in((args, kwargs)), tensors.tensors_in(result)
    sample.total_bytes = sum(tensor.numel() * tensor.element_size() for tensor in given + made)
    sample.bytes_source = "arguments"
    for tensor in given:
        if tensor.is_floating_point():
            sample.compute_dtype = tensors.short_name(tensor.dtype)
            break


def _describe_kernels(sample: Sample) -> None:
    """From the backend's own report of what it has just compiled."""
    report = instrumented_backend.report()
    sample.kernels = [
        Kernel(
            kernel.kernel_name,
            kernel.language,
            kernel.kernel_category,
            kernel.calls,
            kernel.total_bytes,
            kernel.flops,
        )
        for kernel in report.kernels
    ]
    totals = [(kernel.calls or 1, kernel.total_bytes) for kernel in sample.kernels]
    if totals and all(size is not None for _, size in totals):
        sample.total_bytes = sum(calls * (size or 0) for calls, size in totals)
        sample.bytes_source = "kernels"
    counted = [(kernel.calls or 1) * kernel.flops for kernel in sample.kernels if kernel.flops]
    sample.flops = sum(counted) or None


# --- Accuracy -----------------------------------------------------------------------------------


def _accuracy(
    op: torch._ops.OpOverload,
    functions: dict[str, Bind],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> dict[str, str]:
    """Each backend against the first: results, and the arguments that were written to."""
    names = list(functions)
    if is_random(op):
        return {name: "ok: not compared, random by design" for name in names[1:]}

    def run(name: str) -> Any:
        own_args, own_kwargs = tensors.clone((args, kwargs))
        result = functions[name](own_args, own_kwargs)()
        return [tensors.tensors_in(result), own_args, own_kwargs]

    expected = run(names[0])
    return {name: accuracy.compare(run(name), expected) for name in names[1:]}


# --- Memory -------------------------------------------------------------------------------------


def _bytes_needed(
    op: torch._ops.OpOverload, inputs: Inputs, settings: Settings, notes: list[str]
) -> int:
    """An estimate: the inputs, a copy to try them on, a result for each backend and one more."""
    given = tensors.input_bytes(inputs)
    try:
        with FakeTensorMode():
            args, kwargs = tensors.map_specs(_fake, (inputs.args, inputs.kwargs))
            made = tensors.tensors_in(op(*args, **kwargs))
            result = sum(tensor.numel() * tensor.element_size() for tensor in made)
    except Exception as error:  # an operator may have no rule for fake tensors; then guess
        notes.append(f"memory for results guessed: {type(error).__name__}")
        result = given
    return 2 * given + (len(settings.backends) + 1) * result


def _fake(spec: TensorSpec) -> torch.Tensor:
    dtype = tensors.torch_dtype(spec.dtype)
    if spec.stride is None:
        return torch.empty(spec.shape, dtype=dtype)
    return torch.empty_strided(spec.shape, spec.stride, dtype=dtype)


def _bytes_free(device: str) -> int:
    if device == "cuda":
        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info()[0])
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return 1024 * int(line.split()[1])
    raise OSError("/proc/meminfo does not say how much memory is available")


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 300 else text[:297] + "..."
