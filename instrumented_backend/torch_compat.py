"""Every private name of torch that we rely on, and what we change in torch, in one place.

Each function says which torch versions its names hold for (2.11 to 2.15 unless it says less);
``tests/test_torch_compat.py`` fails when one is gone. Patches are few, named and reversible: each
``patch_*`` returns the function that undoes it.
"""

import contextlib
import functools
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import inspect
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

BACKEND_NAME = "instrumented"
ENTRY_POINT_GROUP = "torch_dynamo_backends"
_REGISTRY = "torch._dynamo.backends.registry"

Undo = Callable[[], None]


# --- Registration -------------------------------------------------------------------------------


class _AfterImport(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Runs ``action(module)`` once, right after ``name`` has been imported."""

    def __init__(self, name: str, action: Callable[[ModuleType], None]) -> None:
        self.name = name
        self.action = action
        self.loader: importlib.abc.Loader | None = None

    def find_spec(
        self, name: str, path: Any, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            self.loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        assert self.loader is not None
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert self.loader is not None and module.__spec__ is not None
        # From here on the module looks as if we had never been there.
        module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        self.action(module)


def after_import(name: str, action: Callable[[ModuleType], None]) -> None:
    """Call ``action(module)`` now if the module is there, else as soon as it is imported."""
    module = sys.modules.get(name)
    if module is not None:
        action(module)
    else:
        sys.meta_path.insert(0, _AfterImport(name, action))


def register_by_name() -> None:
    """Make ``backend="instrumented"`` known to Dynamo without importing Dynamo for it.

    Dynamo finds installed backends by their entry point; this adds the same entry point for a
    package that is merely importable. A registered *function* would make Dynamo's own look-up
    of the entry point fail with "duplicate name".
    """
    entry_point = importlib.metadata.EntryPoint(
        BACKEND_NAME, "instrumented_backend.backend:instrumented", ENTRY_POINT_GROUP
    )
    after_import(
        _REGISTRY, lambda registry: registry._BACKENDS.setdefault(BACKEND_NAME, entry_point)
    )


def patch_backend_lookup(convert: Callable[[Any], Any]) -> Undo:
    """Let ``convert`` replace what ``torch.compile`` gives to Dynamo as the backend.

    ``torch.compile`` wraps any backend but Inductor in a plain ``_TorchCompileWrapper``, which
    checks neither mode nor options before the first call. Its next step is ``get_compiler_fn``.
    """
    from torch._dynamo import eval_frame

    original = eval_frame.get_compiler_fn

    def get_compiler_fn(compiler_fn: Any) -> Any:
        return original(convert(compiler_fn))

    eval_frame.get_compiler_fn = get_compiler_fn

    def undo() -> None:
        eval_frame.get_compiler_fn = original

    return undo


# --- Inductor -----------------------------------------------------------------------------------


def compile_fx_keywords(name: str | None) -> dict[str, Any]:
    """What ``compile_fx`` takes beside the configuration (``compile_region_name``: from 2.12)."""
    from torch._inductor.compile_fx import compile_fx

    if "compile_region_name" in inspect.signature(compile_fx).parameters:
        return {"compile_region_name": name}
    return {}


def patch_post_compile(loaded: Callable[[Any], None]) -> Undo:
    """Call ``loaded(compiled_graph)`` whenever Inductor has code ready to run.

    ``CompiledFxGraph.post_compile`` is the one step that cold and warm, forward and backward
    graphs share: ``inner_compile`` is not called on an AOTAutograd cache hit, and what is
    changed there is not kept in the caches.
    """
    from torch._inductor.output_code import CompiledFxGraph

    original = CompiledFxGraph.post_compile

    def post_compile(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        loaded(self)

    CompiledFxGraph.post_compile = post_compile  # type: ignore[method-assign]

    def undo() -> None:
        CompiledFxGraph.post_compile = original  # type: ignore[method-assign]

    return undo


_SCHEDULINGS = {
    "torch._inductor.codegen.cpp": "CppScheduling",
    "torch._inductor.codegen.triton": "TritonScheduling",
}


def patch_kernel_definition(defined: Callable[[str, Any, Any], None]) -> Undo:
    """Call ``defined(name, nodes, kernel)`` whenever Inductor has generated a kernel.

    ``define_kernel`` is the last step at which a kernel's scheduler nodes are at hand. It is
    patched once its module has been imported, which a warm cache never does. ``kernel`` is the
    ``TritonKernel`` or its like; for C++ it is None.
    """
    undos: list[Undo] = []

    def patch(class_name: str, module: ModuleType) -> None:
        undos.append(_patch_scheduling(getattr(module, class_name), defined))

    for module_name, class_name in _SCHEDULINGS.items():
        after_import(module_name, functools.partial(patch, class_name))

    def undo() -> None:
        for one in undos:
            one()

    return undo


def _patch_scheduling(scheduling: Any, defined: Callable[[str, Any, Any], None]) -> Undo:
    original = scheduling.define_kernel

    @functools.wraps(original)
    def define_kernel(self: Any, src_code: str, nodes: Any, kernel: Any = None) -> str:
        name: str = original(self, src_code, nodes, kernel)
        # For C++ the third argument is something else: the kernel's arguments.
        defined(name, nodes, kernel if scheduling.__name__ == "TritonScheduling" else None)
        return name

    scheduling.define_kernel = define_kernel

    def undo() -> None:
        scheduling.define_kernel = original

    return undo


def kernel_bytes(kernel: Any) -> int | None:
    """The bytes that Inductor itself says a launch moves (its ``kernel_num_gb``), if it does."""
    parts = getattr(kernel, "sub_kernels", None)
    if parts:
        counts = [kernel_bytes(part) for part in parts]
        return None if None in counts else sum(count or 0 for count in counts)
    estimate = getattr(kernel, "estimate_kernel_num_bytes", None)
    return None if estimate is None else int(estimate())


def kernel_origins(nodes: Iterable[Any]) -> Iterator[tuple[str | None, str, str | None]]:
    """The ATen op, the FX node and the user's stack of each post-grad node that was fused."""
    import torch

    seen = set()
    for item in nodes:
        for node in item.get_nodes() if hasattr(item, "get_nodes") else ():
            for origin in getattr(node.node, "origins", ()):
                if origin.op != "call_function" or origin in seen:
                    continue
                seen.add(origin)
                aten = origin.meta.get("original_aten")
                if isinstance(aten, torch._ops.OpOverload):
                    aten = aten._overloadpacket
                elif is_higher_order(aten):
                    aten = aten.name()
                source = origin.meta.get("from_node")
                yield (
                    None if aten is None else str(aten),
                    source[0].name if source else origin.name,
                    origin.meta.get("stack_trace"),
                )


def is_output_code(compiled: Any) -> bool:
    """False for a graph without calls, for which Inductor returns a plain function."""
    from torch._inductor.output_code import OutputCode

    return isinstance(compiled, OutputCode)


def is_backward_code(compiled_graph: Any) -> bool:
    return bool(compiled_graph.fx_kwargs.get("is_backward"))


def code_path(compiled_graph: Any) -> str:
    """Where Inductor keeps the generated module of a ``CompiledFxGraph``."""
    from torch._inductor.codecache import get_path

    return get_path(compiled_graph.cache_key, "py")[2]


# --- Dynamo -------------------------------------------------------------------------------------


def current_compile_id() -> Any:
    from torch._guards import CompileContext

    return CompileContext.current_compile_id()


def current_attempt() -> int:
    """How often Dynamo has started the compilation under way over."""
    from torch._guards import CompileContext

    context = CompileContext.try_get()
    return 0 if context is None else int(context.attempt)


def is_compiled_autograd(compile_id: Any) -> bool:
    return compile_id is not None and compile_id.compiled_autograd_id is not None


def wrap_compiled(
    compiled: Callable[..., Any], wrap: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Callable[..., Any]:
    """``wrap`` what ``compile_fx`` returned, under its guard against being traced by Dynamo.

    ``compile_fx`` returns a function under ``torch._dynamo.disable``. Dynamo disables what a
    backend returns, too, and takes off a guard that is there already; it cannot see one inside
    a wrapper, and every call would pay for both (0.3 µs).
    """
    import torch._dynamo
    from torch._dynamo.eval_frame import innermost_fn

    inner = innermost_fn(compiled)
    if inner is compiled:
        return wrap(compiled)
    reason = getattr(compiled, "_torchdynamo_disable_msg", None)
    guarded: Callable[..., Any] = torch._dynamo.disable(wrap(inner), reason=reason)
    return guarded


def subgraph_reason(gm: "torch.fx.GraphModule") -> Any:
    """Why the graph ended: ``.reason``, ``.user_stack``, ``.graph_break``; None outside Dynamo."""
    return getattr(gm, "compile_subgraph_reason", None)


def is_higher_order(target: Any) -> bool:
    from torch._ops import HigherOrderOperator

    return isinstance(target, HigherOrderOperator)


# In eager, these run their nested graph op by op,
TRANSPARENT_OPERATORS = frozenset(
    {
        "dynamo_bypassing_wrapper",
        "hints_wrapper",
        "invoke_subgraph",
        "strict_mode",
        "tag_activation_checkpoint",
        "wrap",
        "wrap_activation_checkpoint",
        "wrap_with_autocast",
        "wrap_with_set_grad_enabled",
    }
)
# these are one op (an autograd.Function), whatever they enclose,
SINGLE_OPERATORS = frozenset({"autograd_function_apply", "flex_attention"})
# and these dispatch nothing: a Triton kernel of the user's own is launched past the dispatcher.
OPLESS_OPERATORS = frozenset(
    {"register_hook", "triton_kernel_wrapper_functional", "triton_kernel_wrapper_mutation"}
)
# What torch.func wraps tensors with. All but these only keep its books, in no op.
_FUNC_MODULES = (
    "torch._C._functorch",
    "torch._functorch.eager_transforms",
    "torch._functorch.predispatch",
)
_FUNC_OPERATORS = frozenset({"_make_dual", "_unpack_dual"})
_FUNC_GRADIENTS = "_autograd_grad"


# Functions that fake tensors take apart before autograd sees them; in eager one autograd node each.
ONE_AUTOGRAD_NODE = frozenset(
    {
        "hardshrink",
        "interpolate",
        "multi_margin_loss",
        "multilabel_margin_loss",
        "softshrink",
        "upsample",
        "upsample_bilinear",
        "upsample_nearest",
    }
)
RECURRENT = frozenset({"gru", "lstm", "rnn_relu", "rnn_tanh"})  # taken apart, too


def higher_order_name(operator: Any) -> str:
    return str(operator._name)


def is_func_wrapping(target: Any) -> bool:
    """A step of ``torch.func``'s transforms. Out of its place, without its levels, it can't run."""
    return getattr(target, "__module__", None) in _FUNC_MODULES


def is_func_operator(target: Any) -> bool:
    """A step of ``torch.func`` that is an op."""
    return getattr(target, "__name__", None) in _FUNC_OPERATORS


def is_func_gradients(target: Any) -> bool:
    """The step of ``torch.func.grad`` and its like that runs the autograd nodes."""
    return getattr(target, "__name__", None) == _FUNC_GRADIENTS


def is_operator(target: Any) -> bool:
    from torch._ops import OpOverload, OpOverloadPacket

    return isinstance(target, (OpOverload, OpOverloadPacket))


def is_size_operator(target: Any) -> bool:
    """Is it ``aten.sym_size.int`` or its like? In eager, a size is asked for without an op."""
    return is_operator(target) and str(target).partition("(")[0].startswith("aten.sym_")


def is_changed(tensor: Any) -> bool:
    """Has a fake tensor, or the memory that it is a view of, been changed in place?

    Fake tensors begin at version 0, whatever the real one's is.
    """
    return not tensor.is_inference() and tensor._version > 0


def is_torchs_own(target: Any) -> bool:
    """Is what a node calls torch's or Python's, rather than the program's or some package's?

    Method names are torch's: Dynamo calls methods of tensors only.
    """
    if isinstance(target, str):
        return True
    if is_operator(target):
        namespace = str(target).partition(".")[0]
        return namespace in ("aten", "prim", "prims")
    # An autograd.Function of the program's has a method ``apply`` of torch's.
    owner = getattr(target, "__self__", None)
    named = owner if isinstance(owner, type) else target
    module = getattr(named, "__module__", None) or "torch"  # that of torch.sin is None
    return module.partition(".")[0] in ("torch", "_operator", "math", "builtins")


def attribute(gm: "torch.fx.GraphModule", target: str) -> Any:
    """What a ``get_attr`` node of ``gm`` refers to."""
    value: Any = gm
    for name in target.split("."):
        value = getattr(value, name)
    return value


def is_graph_module(value: Any) -> bool:
    from torch.fx import GraphModule

    return isinstance(value, GraphModule)


def tensor_kind(tensor: Any) -> dict[str, Any] | None:
    """What a plain or fake tensor is like, symbolic sizes by their hints; None for subclasses."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    if type(tensor) not in (torch.Tensor, FakeTensor, torch.nn.Parameter):
        return None
    if tensor.layout is not torch.strided:
        return None
    return {
        "shape": tuple(map(number_hint, tensor.shape)),
        "stride": tuple(map(number_hint, tensor.stride())),
        "dtype": tensor.dtype,
        "device": str(tensor.device),
    }


def number_hint(value: Any) -> Any:
    """The example behind a symbolic number; other values as they are.

    Never asks the symbolic number itself: that would add a guard to the user's graph.
    """
    import torch

    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return value.node.hint
    return value


def tensor_method(name: str) -> Callable[..., Any] | None:
    import torch

    return getattr(torch.Tensor, name, None)


def is_device(value: Any) -> bool:
    import torch

    return isinstance(value, torch.device)


def fake_mode() -> Any:
    """A context in which calls make and take tensors without memory, apart from Dynamo's own."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode()


def graphs_in(gm: "torch.fx.GraphModule") -> Iterator["torch.fx.Graph"]:
    """The graph of ``gm`` and those nested in it, each once."""
    from torch.fx import GraphModule

    for module in gm.modules():
        if isinstance(module, GraphModule):
            yield module.graph


def device_kind(value: Any) -> str | None:
    """``"cuda"`` for a tensor on one; None for what is no tensor."""
    import torch

    return value.device.type if isinstance(value, torch.Tensor) else None


def is_fake(value: Any) -> bool:
    from torch._subclasses.fake_tensor import FakeTensor

    return isinstance(value, FakeTensor)


def metric_fields() -> list[str]:
    """The fields of ``CachedMetricsHelper``: Inductor's counters that its caches keep."""
    from torch._inductor.metrics import get_metric_fields

    return get_metric_fields()


def metric_values() -> dict[str, int]:
    from torch._inductor.metrics import CachedMetricsHelper

    return dict(CachedMetricsHelper().cached_metrics)


def dynamo_counters() -> Mapping[str, Mapping[str, int]]:
    from torch._dynamo.utils import counters

    return counters


def patch_compile_callbacks(compiling: Callable[[], AbstractContextManager[None]]) -> Undo:
    """Enter ``compiling()`` while a thread compiles.

    For Dynamo's compilations, lazy backward ones and CUDA graph recordings. Dynamo's own callbacks
    are not told of a second thread, and are forgotten in ``torch._dynamo.reset()``.
    """
    from torch._dynamo.callback import CompilationCallbackHandler

    original = CompilationCallbackHandler.install_callbacks

    @contextlib.contextmanager
    def install_callbacks(self: Any, *args: Any, **kwargs: Any) -> Iterator[None]:
        with compiling(), original(self, *args, **kwargs):
            yield

    CompilationCallbackHandler.install_callbacks = install_callbacks  # type: ignore[method-assign]

    def undo() -> None:
        CompilationCallbackHandler.install_callbacks = original  # type: ignore[method-assign]

    return undo


# --- CUDA graphs --------------------------------------------------------------------------------

_CUDAGRAPH_TREES = "torch._inductor.cudagraph_trees"


def patch_cudagraphs(
    recorded: Callable[[str, str, int, str | None, int], None],
    replayed: Callable[[int], None],
    skips: logging.Handler,
    guard: Callable[[], AbstractContextManager[None]],
) -> Undo:
    """Tell of each CUDA graph that Inductor's trees record or replay, and listen to skips.

    ``recorded(compile id, direction, function, mismatch, node)``: ``function`` numbers what the
    trees take for one function, a new one for new sizes; ``mismatch`` says why an earlier
    recording at the same place in the tree does not fit. ``replayed(node)`` must not raise;
    nothing but these methods tells of replays. ``skips`` gets the log records in which torch says
    why it does without. ``guard`` keeps failures of ours from the program.
    """
    from torch._inductor import cudagraph_utils

    # At once: where every graph is skipped, the trees are never imported.
    logger = cudagraph_utils.cudagraphs_log
    logger.addHandler(skips)
    undos: list[Undo] = [lambda: logger.removeHandler(skips)]

    def patch(module: ModuleType) -> None:
        with guard():
            undos.append(_patch_trees(module, recorded, replayed, guard))

    after_import(_CUDAGRAPH_TREES, patch)

    def undo() -> None:
        for one in undos:
            one()

    return undo


def _patch_trees(
    module: Any,
    recorded: Callable[[str, str, int, str | None, int], None],
    replayed: Callable[[int], None],
    guard: Callable[[], AbstractContextManager[None]],
) -> Undo:
    manager = module.CUDAGraphTreeManager
    record, execute = manager.record_function, manager.execute_node
    backward = module.CompilationMode.BACKWARD

    @functools.wraps(record)
    def record_function(self: Any, new_inputs: Any, function_id: Any) -> Any:
        described = None
        with guard():
            direction = "backward" if self.mode == backward else "forward"
            mismatch = _mismatch(self, new_inputs, function_id)
            described = str(self.compile_id), direction, function_id.id, mismatch
        result = record(self, new_inputs, function_id)
        if described is not None:
            with guard():
                recorded(*described, id(self.current_node))
        return result

    @functools.wraps(execute)
    def execute_node(self: Any, node: Any, new_inputs: Any) -> Any:
        replayed(id(node))
        return execute(self, node, new_inputs)

    manager.record_function, manager.execute_node = record_function, execute_node

    def undo() -> None:
        manager.record_function, manager.execute_node = record, execute

    return undo


def _mismatch(trees: Any, inputs: Any, function_id: Any) -> str | None:
    """Why the last recording of the function after the same graph can't be replayed."""
    node = trees.current_node
    siblings = (trees.roots if node is None else node.children).get(function_id)
    if not siblings:
        return None
    # On a copy: where the recording fits after all, the method takes inputs out of the list.
    status = siblings[-1].check_invariants(list(inputs))[0]
    return str(status.name)


def cudagraph_pool_bytes() -> int | None:
    """Device memory in the pools of CUDA graphs; None where there is no GPU in use."""
    import torch

    trees = sys.modules.get(_CUDAGRAPH_TREES)
    if trees is None or not torch.cuda.is_initialized():
        return None
    # Traces are the program's, if it records any: to read them takes seconds.
    segments = torch.cuda.memory_snapshot(include_traces=False)
    return sum(
        int(segment["total_size"])
        for segment in segments
        if tuple(segment.get("segment_pool_id", (0, 0))) != (0, 0)
    )


# --- Inductor's metric tables -------------------------------------------------------------------


def inductor_metrics() -> Any:
    """The module whose functions ``instrumented_backend.metrics`` has under the same names."""
    return importlib.import_module("torch._inductor.metrics")


def registered_metric_tables() -> tuple[str, ...]:
    """The tables' names; none while nobody has imported Inductor's metrics."""
    metrics = sys.modules.get("torch._inductor.metrics")
    return () if metrics is None else tuple(metrics.REGISTERED_METRIC_TABLES)


def metric_tables_asked(options: Mapping[str, Any]) -> str:
    """Which tables a compilation with these options writes: the comma list in Inductor's config.

    That is the environment variable, unless the program changed it.
    """
    from torch._inductor import config

    return str(options.get("enabled_metric_tables", config.enabled_metric_tables))


def benchmark_name() -> str | None:
    """The model's name in PyTorch's benchmark scripts, ``--only NAME``: a row's first cell."""
    from torch._inductor.utils import get_benchmark_name

    return get_benchmark_name()


def patch_metric_tables(
    replace: Callable[[Any], Any], log_kernel_metadata: Callable[[str, str, str], None]
) -> Undo:
    """Let ``replace(table)`` stand in for each registered table, and log kernels in our way.

    Inductor's own ``MetricTable.add_row`` refuses integers and lists, which its scheduler passes;
    its ``log_kernel_metadata`` looks for size hints in a form that is no longer generated. Both
    end the user's compilation with an AssertionError (2.11 to 2.15).
    """
    metrics = inductor_metrics()
    # The one module that holds the function by itself and not as ``metrics.log_kernel_metadata``.
    halide: Any = importlib.import_module("torch._inductor.codegen.halide")
    tables = dict(metrics.REGISTERED_METRIC_TABLES)
    original = metrics.log_kernel_metadata
    for name, table in tables.items():
        metrics.REGISTERED_METRIC_TABLES[name] = replace(table)
    metrics.log_kernel_metadata = halide.log_kernel_metadata = log_kernel_metadata

    def undo() -> None:
        metrics.REGISTERED_METRIC_TABLES.update(tables)
        metrics.log_kernel_metadata = halide.log_kernel_metadata = original

    return undo


def patch_multi_kernel_row(row: Callable[[Any, list[float]], dict[str, Any]]) -> Undo:
    """Let ``row(call, timings)`` make the rows of ``persistent_red_perf``.

    Inductor's own method asks a kernel's function for its file; a kernel that a worker process
    compiled has no function (2.11 to 2.15).
    """
    from torch._inductor.codegen.multi_kernel import MultiKernelCall

    original = MultiKernelCall._metrics_table_row
    MultiKernelCall._metrics_table_row = row  # type: ignore[method-assign]

    def undo() -> None:
        MultiKernelCall._metrics_table_row = original  # type: ignore[method-assign]

    return undo


def patch_remote_compile() -> Undo:
    """Keep the tables off in processes to which Inductor hands a whole compilation.

    Such a process (``TORCHINDUCTOR_FX_COMPILE_MODE=SUBPROCESS``) has Inductor's own tables, whose
    AssertionError would come back as the user's. The cache key is made before (2.11 to 2.15).
    """
    from torch._inductor import config
    from torch._inductor.compile_fx_ext import _OutOfProcessFxCompile

    original = _OutOfProcessFxCompile.serialize_compile

    def serialize_compile(self: Any, *args: Any, **kwargs: Any) -> Any:
        with config.patch(enabled_metric_tables=""):
            return original(self, *args, **kwargs)

    _OutOfProcessFxCompile.serialize_compile = serialize_compile  # type: ignore[method-assign]

    def undo() -> None:
        del _OutOfProcessFxCompile.serialize_compile  # its base class has the original

    return undo


def next_scheduler_graph_id() -> int:
    """Take the next ``graph_id`` of ``graph_stats``; nothing else draws from that counter."""
    from torch._inductor import scheduler

    return next(scheduler._post_grad_graph_counter)


def fx_graph_key(compiled_graph: Any) -> str | None:
    """The key under which the FX graph cache keeps a graph; None where it doesn't."""
    key: str | None = compiled_graph._fx_graph_cache_key
    return key


def cache_folder() -> str:
    """Inductor's cache folder; made if it isn't there."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    return cache_dir()


def cache_entry_bytes(cache: str, key: str) -> int:
    """What an entry of the "autograd" or the "fx_graph" cache takes on the disk; 0 if not there."""
    parts = ("aotautograd", key) if cache == "autograd" else ("fxgraph", key[1:3], key)
    try:
        return sum(file.stat().st_size for file in Path(cache_folder(), *parts).iterdir())
    except OSError:
        return 0  # no local cache, or removed by somebody


# --- Running generated code -----------------------------------------------------------------------


def generated_modules() -> list[ModuleType]:
    """The generated modules that this process has loaded, in order."""
    codecache = sys.modules.get("torch._inductor.codecache")
    return [] if codecache is None else list(codecache.PyCodeCache.modules)


def patch_autotune_cache() -> Undo:
    """Let autotuners start with all their configurations, and keep what they choose to themselves.

    Where Inductor has tuned a kernel before, it drops all but the best when the kernel is loaded.
    """
    from torch._inductor.runtime.autotune_cache import AutotuneCache

    original = AutotuneCache.__dict__["create"]
    AutotuneCache.create = staticmethod(lambda *args, **kwargs: None)  # type: ignore[method-assign]

    def undo() -> None:
        AutotuneCache.create = original  # type: ignore[method-assign]

    return undo


# --- The structured trace log -------------------------------------------------------------------

TRACE_LOGGER = "torch.__trace"


class _SelectiveHandlers(list[logging.Handler]):
    """The trace logger's handlers, empty to torch's eyes for events that we don't want.

    ``trace_structured`` renders an event (whole graphs, all guards: 3 to 10 % of a warm compile)
    if ``trace_log.handlers`` is true. It is for every event once another handler is there
    (TORCH_TRACE); with ours alone, only for the events in ``wanted``. Which event is asked for
    is read from the caller's arguments; where they can't be found, the answer is yes.
    Marks of time (``chromium_event``) are passed to ``timed`` as they are, and never rendered for
    us: there are hundreds in a compilation.
    """

    def __init__(
        self,
        handlers: list[logging.Handler],
        wanted: frozenset[str],
        artifacts: frozenset[str],
        timed: Callable[[dict[str, Any]], None] | None,
    ) -> None:
        super().__init__(handlers)
        self.wanted = wanted
        self.artifacts = artifacts
        self.timed = timed

    def __bool__(self) -> bool:
        caller = sys._getframe(1)
        if caller.f_code.co_name != "trace_structured":
            return len(self) > 0
        arguments = caller.f_locals
        event = arguments.get("name")
        if event == "chromium_event" and self.timed is not None:
            self.timed(arguments["payload_fn"]())
            return len(self) > 1
        if len(self) != 1 or event is None or event in self.wanted:
            return len(self) > 0
        if event != "artifact":
            return False
        metadata = arguments["metadata_fn"]()
        return metadata.get("name") in self.artifacts


def listen_to_trace_log(
    handler: logging.Handler,
    wanted: frozenset[str],
    artifacts: frozenset[str],
    timed: Callable[[dict[str, Any]], None] | None = None,
) -> Undo:
    """Attach ``handler`` for the named events, and the named events of kind "artifact".

    ``timed`` gets torch's marks of time as dicts, in the form of Chrome traces: ``name``, ``ph``
    ("B": start, "E": end, "i": an instant), ``args``. It must not raise.
    """
    logger = logging.getLogger(TRACE_LOGGER)
    logger.addHandler(handler)
    logger.handlers = _SelectiveHandlers(logger.handlers, wanted, artifacts, timed)

    def undo() -> None:
        logger.handlers = list(logger.handlers)
        logger.removeHandler(handler)

    return undo


def recompiled_frame() -> Any:
    """The call that Dynamo is recompiling for, while it reports why: ``f_code``, ``f_locals``...

    Read from the caller's arguments, as above; None where they can't be found.
    """
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "get_and_maybe_log_recompilation_reasons":
            return frame.f_locals.get("frame")
        frame = frame.f_back
    return None


@dataclass(frozen=True)
class CompilationUnderWay:
    """``others``: for a backend of torch's, not for ours.

    ``raises``: with ``fullgraph=True``, or in ``torch._dynamo.error_on_graph_break(True)``; of the
    latter it is known when a compilation has failed.
    """

    code: CodeType | None = None  # of the function
    others: bool = False
    raises: bool = False
    # Where Dynamo put a function of its own round one of torch's: name, file and line of that.
    wrapped: tuple[str, str, int] | None = None


def compilation_under_way() -> CompilationUnderWay:
    """The innermost compilation by Dynamo on this thread, read from its caller's arguments."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_name == "_compile" and code.co_filename.endswith("convert_frame.py"):
            scope = frame.f_locals
            return CompilationUnderWay(
                scope.get("code"),
                _is_others(scope.get("compiler_fn")),
                bool(
                    scope.get("one_graph")
                    or getattr(scope.get("convert_frame_box"), "error_on_graph_break", False)
                ),
                _wrapped(scope),
            )
        frame = frame.f_back
    return CompilationUnderWay()


def _wrapped(scope: Mapping[str, Any]) -> tuple[str, str, int] | None:
    """``nn.Sequential`` for ``inner`` of ``external_utils.py``, by which Dynamo calls a model that
    is of a class of torch's own."""
    code = scope.get("code")
    if code is None or code.co_name != "inner":
        return None
    if not code.co_filename.endswith(os.path.join("_dynamo", "external_utils.py")):
        return None
    called = (scope.get("locals") or {}).get("fn")
    if called is None:
        return None
    name = getattr(called, "__name__", type(called).__qualname__)
    # What is written in C++ has no place of its own.
    own = getattr(getattr(type(called), "forward", called), "__code__", code)
    return name, own.co_filename, own.co_firstlineno


def _is_others(backend: Any) -> bool:
    """A function of the program's is not: it may call ours."""
    import torch

    while hasattr(backend, "_torchdynamo_orig_backend"):
        backend = backend._torchdynamo_orig_backend
    if isinstance(backend, torch._TorchCompileInductorWrapper):
        return str(backend.compiler_name) != BACKEND_NAME
    function = getattr(backend, "compiler_fn", backend)
    return str(getattr(function, "__module__", None)).startswith("torch.")


def suppresses_errors() -> bool:
    """Does the program want what fails to compile to run eagerly?"""
    import torch._dynamo.config

    return bool(torch._dynamo.config.suppress_errors)


def global_state(name: str) -> str | None:
    """The present value of what Dynamo's guard calls ``name``: ``grad_mode``, ``num_threads``..."""
    import torch

    if name == "grad_mode":
        return str(torch.is_grad_enabled())
    if name == "num_threads":
        return str(torch.get_num_threads())
    if name == "deterministic_algorithms":
        return str(torch.are_deterministic_algorithms_enabled())
    if name.startswith("autocast(") and name.endswith(")_enabled"):
        return str(torch.is_autocast_enabled(name[len("autocast(") : -len(")_enabled")]))
    return None


def revive_trace_log() -> bool:
    """Undo ``disable_existing_loggers`` for the trace log; False if logging is off altogether.

    ``logging.config.dictConfig`` disables every logger that it doesn't name. The trace log never
    propagates, so that this brings no line onto anybody's console.
    """
    logger = logging.getLogger(TRACE_LOGGER)
    logger.disabled = False
    return logger.isEnabledFor(logging.DEBUG)


# --- Run time -----------------------------------------------------------------------------------


def record_function_fast() -> Any:
    """The context manager that marks a span in a profile at a tenth of record_function's cost."""
    from torch._C._profiler import _RecordFunctionFast

    return _RecordFunctionFast


def profiler_state() -> ModuleType:
    """The module whose ``_is_profiler_enabled`` says whether any profiler runs."""
    import torch.autograd.profiler

    return torch.autograd.profiler


def watch_profiler_state(changed: Callable[[bool], None]) -> Undo:
    """Call ``changed`` with whether any profiler runs: now, and whenever torch notes it (2.11 to
    2.15)."""
    module: Any = profiler_state()
    original = module._set_is_profiler_enabled

    @functools.wraps(original)
    def note(enable: bool) -> None:
        original(enable)
        changed(enable)

    module._set_is_profiler_enabled = note
    changed(module._is_profiler_enabled)

    def undo() -> None:
        module._set_is_profiler_enabled = original

    return undo


def device_profile() -> Any:
    """A profiler of kernels, of the calls that launch them, and of this backend's regions.

    A context manager with ``export_chrome_trace(path)``. It is what ``torch.profiler.profile`` is
    made of: that one warns, on the program's stderr, that it keeps one window's events only.
    """
    from torch.autograd.profiler import profile

    return profile(use_device="cuda", use_kineto=True)


def watch_profilers(starting: Callable[[], None], stopped: Callable[[], None]) -> None:
    """Have the one called before a profiler of anybody's is prepared or starts, the other when it
    has stopped; torch 2.11 to 2.15."""
    module = profiler_state()

    def before(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            enabled = module._is_profiler_enabled
            starting()
            if enabled and original.__name__ == "_enable_profiler":
                # emit_nvtx sets it first, and a profiler that ended for it just now took it back.
                module._set_is_profiler_enabled(True)
            return original(*args, **kwargs)

        return call

    def after(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return original(*args, **kwargs)
            finally:
                stopped()

        return call

    for name, wrap in (
        ("_prepare_profiler", before),
        ("_enable_profiler", before),
        ("_disable_profiler", after),
    ):
        setattr(module, name, wrap(getattr(module, name)))


def synchronize() -> None:
    """Wait until the current GPU has done all that was asked of it."""
    import torch

    torch.cuda.synchronize()


def is_grad_enabled() -> bool:
    import torch

    return torch.is_grad_enabled()


def is_capturing() -> bool:
    """Is a CUDA graph being recorded on this thread's stream?"""
    import torch

    return torch.cuda.is_current_stream_capturing()


def is_running_backward(code: CodeType) -> bool:
    """Of a thread's innermost frame: has it called the autograd engine?"""
    from torch.autograd import graph

    return code is graph._engine_run_backward.__code__


def version() -> str:
    import torch

    return str(torch.__version__)


def rank() -> int:
    """The process's rank in its job; 0 outside distributed jobs."""
    import os

    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    text = os.environ.get("RANK", "0")
    return int(text) if text.isdecimal() else 0


def device_names(kinds: Iterable[str]) -> list[str]:
    """``["cuda"]`` → the names of its devices that the program used; other kinds stay as is."""
    import torch

    names: list[str] = []
    for kind in kinds:
        if kind == "cuda" and torch.cuda.is_initialized():
            names.append(torch.cuda.get_device_name())
        else:
            names.append(kind)
    return names


# --- Building against torch ---------------------------------------------------------------------


def build_id() -> str:
    """Which build of torch this is: version, source commit, C++ ABI."""
    import torch

    return f"{torch.__version__} {torch.version.git_version} {_cxx11_abi()}"


def _cxx11_abi() -> int:
    import torch

    return int(torch.compiled_with_cxx11_abi())


def compile_flags() -> list[str]:
    """For a C++ file that includes torch's own headers, without importing cpp_extension."""
    return [f"-D_GLIBCXX_USE_CXX11_ABI={_cxx11_abi()}", f"-I{_torch_folder() / 'include'}"]


def link_flags() -> list[str]:
    return [f"-L{_torch_folder() / 'lib'}", "-ltorch_cpu", "-lc10"]


def _torch_folder() -> Path:
    import torch

    return Path(torch.__file__).parent


def folder() -> str:
    return str(_torch_folder())
