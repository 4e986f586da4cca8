"""The private names of Inductor are there, and do what we take them to do."""

import inspect
import types
from typing import Any

import torch

from instrumented_backend.torch_compat import inductor


def test_compile_fx_keywords() -> None:
    from torch._inductor.compile_fx import compile_fx

    parameters = inspect.signature(compile_fx).parameters
    assert set(inductor.compile_fx_keywords("name")) <= set(parameters)
    assert {"inner_compile", "config_patches"} <= set(parameters)


def test_inductors_own_wrapper() -> None:
    wrapper = torch._TorchCompileInductorWrapper("max-autotune-no-cudagraphs", None, None)
    assert wrapper.config["max_autotune"] is True


def test_inductors_cache_folder(inductor_cache: Any) -> None:
    assert inductor.cache_folder() == str(inductor_cache)


def test_generated_modules_of_the_process() -> None:
    from torch._inductor.codecache import PyCodeCache

    assert inductor.generated_modules() == PyCodeCache.modules


def test_autotuners_without_a_cache() -> None:
    from torch._inductor.runtime import autotune_cache, triton_heuristics

    cache = autotune_cache.AutotuneCache
    # Where the name that is patched is looked up.
    assert triton_heuristics.AutotuneCache is cache
    before = cache.__dict__["create"]
    undo = inductor.patch_autotune_cache()
    try:
        assert cache.create({"autotune_local_cache": True}, "/tmp/kernel.py", "hash") is None
    finally:
        undo()
    assert cache.__dict__["create"] is before and isinstance(before, staticmethod)


def test_inductors_own_bytes_of_a_kernel() -> None:
    """The method is there; what it says is checked on a GPU, where Triton kernels are."""
    from torch._inductor.codegen.simd import SIMDKernel

    assert callable(SIMDKernel.estimate_kernel_num_bytes)
    part = types.SimpleNamespace(estimate_kernel_num_bytes=lambda: 12.0)
    assert inductor.kernel_bytes(part) == 12
    assert inductor.kernel_bytes(types.SimpleNamespace(sub_kernels=[part, part])) == 24
    assert inductor.kernel_bytes(types.SimpleNamespace()) is None
