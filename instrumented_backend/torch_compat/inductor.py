"""Inductor: the code that it compiles and loads, what a kernel was made from, its caches."""

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from instrumented_backend.torch_compat.fx import is_higher_order
from instrumented_backend.torch_compat.hooks import (
    Undo,
    after_import,
    replace_attribute,
    together,
)

# Private names, by the versions of torch that have them.
NAMES = {
    "2.11 to 2.15": (
        "torch._dynamo.testing.rand_strided",
        "torch._functorch.config.bundled_autograd_cache",
        "torch._inductor.codecache.PyCodeCache.modules",
        "torch._inductor.codecache.get_path",
        "torch._inductor.codegen.cpp.CppScheduling.define_kernel",
        "torch._inductor.codegen.simd.SIMDKernel.estimate_kernel_num_bytes",
        "torch._inductor.codegen.triton.TritonScheduling.define_kernel",
        "torch._inductor.compile_fx.compile_fx(example_inputs_)",
        "torch._inductor.compile_fx.compile_fx(inner_compile)",
        "torch._inductor.compile_fx.compile_fx(model_)",
        "torch._inductor.compile_fx.compile_fx_inner",
        "torch._inductor.output_code.CompiledFxGraph._fx_graph_cache_key",
        "torch._inductor.output_code.CompiledFxGraph.cache_key",
        "torch._inductor.output_code.CompiledFxGraph.fx_kwargs",
        "torch._inductor.output_code.CompiledFxGraph.post_compile",
        "torch._inductor.output_code.OutputCode",
        "torch._inductor.runtime.autotune_cache.AutotuneCache.create",
        "torch._inductor.runtime.cache_dir_utils.cache_dir",
        "torch._inductor.runtime.triton_heuristics.CachingAutotuner",
        "torch._inductor.virtualized.V",
        "torch._inductor.virtualized.V.aot_compilation",
        "torch._ops.OpOverload",
        "torch._ops.OpOverload._overloadpacket",
    ),
    "2.12 to 2.15": ("torch._inductor.compile_fx.compile_fx(compile_region_name)",),
}


def compile_fx() -> Callable[..., Any]:
    """Inductor's backend function; imports Inductor, which takes a second."""
    from torch._inductor.compile_fx import compile_fx

    return compile_fx


def compile_fx_inner() -> Callable[..., Any]:
    """Its step for one graph after AOTAutograd, forward or backward."""
    from torch._inductor.compile_fx import compile_fx_inner

    return compile_fx_inner


def patch_compile_fx(module: ModuleType, replacement: Callable[..., Any]) -> Undo:
    """Let ``replacement(compile_fx, ...)`` be called in place of Inductor's ``compile_fx(...)``.

    ``module`` is ``torch._inductor.compile_fx``, right after its import: who takes the function
    from there by name has the replacement.
    """
    original = module.compile_fx

    @functools.wraps(original)
    def compile_fx(*args: Any, **kwargs: Any) -> Any:
        return replacement(original, *args, **kwargs)

    return replace_attribute(module, "compile_fx", compile_fx)


@dataclass(frozen=True)
class DirectCall:
    """A call of ``compile_fx``; ``compile_fx`` has all its arguments but ``inner_compile``."""

    compile_fx: Callable[..., Any]
    inner_compile: Callable[..., Any]
    gm: Any
    example_inputs: Any
    config: dict[str, Any]
    name: str | None


def direct_call(
    compile_fx: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> DirectCall | None:
    """A call that can be observed: of a graph, for a function that is called and no more than that.

    AOTInductor gets files, and with bundled caches the function is also what will be saved.
    """
    import torch
    import torch._functorch.config
    from torch._inductor.virtualized import V

    if V.aot_compilation or torch._functorch.config.bundled_autograd_cache:
        return None
    try:
        arguments = inspect.signature(compile_fx).bind(*args, **kwargs).arguments
    except TypeError:
        return None  # the call itself will raise it
    if not isinstance(arguments["model_"], torch.fx.GraphModule):
        return None
    inner_compile = arguments.pop("inner_compile", None) or compile_fx_inner()
    return DirectCall(
        functools.partial(compile_fx, **arguments),
        inner_compile,
        arguments["model_"],
        arguments["example_inputs_"],
        arguments.get("config_patches") or {},
        arguments.get("compile_region_name"),
    )


def compile_fx_keywords(name: str | None) -> dict[str, Any]:
    """What ``compile_fx`` takes beside the configuration (``compile_region_name``: from 2.12)."""
    if "compile_region_name" in inspect.signature(compile_fx()).parameters:
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

    return replace_attribute(CompiledFxGraph, "post_compile", post_compile)


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
    return together(undos)


def _patch_scheduling(scheduling: Any, defined: Callable[[str, Any, Any], None]) -> Undo:
    original = scheduling.define_kernel

    @functools.wraps(original)
    def define_kernel(self: Any, src_code: str, nodes: Any, kernel: Any = None) -> str:
        name: str = original(self, src_code, nodes, kernel)
        # For C++ the third argument is something else: the kernel's arguments.
        defined(name, nodes, kernel if scheduling.__name__ == "TritonScheduling" else None)
        return name

    return replace_attribute(scheduling, "define_kernel", define_kernel)


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


def fx_graph_key(compiled_graph: Any) -> str | None:
    """The key under which the FX graph cache keeps a graph; None where it doesn't."""
    key: str | None = compiled_graph._fx_graph_cache_key
    return key


def cache_folder() -> str:
    """Inductor's cache folder; made if it isn't there."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    return cache_dir()


def cache_entry_bytes(cache: str, key: str) -> int:
    """The bytes on disk of an entry of the "autograd" or "fx_graph" cache; 0 if there is none."""
    parts = ("aotautograd", key) if cache == "autograd" else ("fxgraph", key[1:3], key)
    try:
        return sum(file.stat().st_size for file in Path(cache_folder(), *parts).iterdir())
    except OSError:
        return 0  # no local cache, or removed by somebody


def generated_modules() -> list[ModuleType]:
    """The generated modules that this process has loaded, in order."""
    codecache = sys.modules.get("torch._inductor.codecache")
    return [] if codecache is None else list(codecache.PyCodeCache.modules)


def is_triton_kernel(value: Any) -> bool:
    """Is it what a generated module has for a Triton kernel: an autotuner of its configurations?"""
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    return isinstance(value, CachingAutotuner)


def patch_rand_strided(replacement: Callable[..., Any]) -> Undo:
    """Let ``replacement`` make the random inputs of a generated module, which imports it late."""
    import torch._dynamo.testing

    return replace_attribute(torch._dynamo.testing, "rand_strided", replacement)


def patch_autotune_cache() -> Undo:
    """Let autotuners start with all their configurations, and keep what they choose to themselves.

    Where Inductor has tuned a kernel before, it drops all but the best when the kernel is loaded.
    """
    from torch._inductor.runtime.autotune_cache import AutotuneCache

    return replace_attribute(AutotuneCache, "create", staticmethod(lambda *args, **kwargs: None))
