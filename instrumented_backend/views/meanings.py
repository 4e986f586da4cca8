"""What each counter of Inductor and Dynamo counts, and each row of the ledger, in a sentence."""

from collections.abc import Iterable

_COUNTERS = {
    ("inductor_metrics", "generated_kernel_count"): (
        "kernel objects that code generation made; for C++ more than the kernels that are left"
    ),
    ("inductor_metrics", "generated_cpp_vec_kernel_count"): "those of them that are vectorized C++",
    ("inductor_metrics", "num_bytes_accessed"): (
        "bytes that the kernels move; only with TORCH_LOGS=inductor_metrics"
    ),
    ("inductor_metrics", "ir_nodes_pre_fusion"): "scheduler nodes before fusion",
    ("inductor_metrics", "cpp_to_dtype_count"): "conversions between dtypes in C++ kernels",
    ("inductor_metrics", "num_comprehensive_padding"): "tensors whose strides were padded",
    ("inductor_metrics", "num_matches_for_scatter_upon_const_tensor"): (
        "scatters onto constants that became pointwise"
    ),
    ("inductor_metrics", "num_loop_reordering"): "loop nests reordered so that they fuse",
    ("inductor_metrics", "num_auto_chunking"): "parts of graphs that were computed in chunks",
    ("inductor_metrics", "parallel_reduction_count"): "reductions split over threads in C++",
    ("inductor_metrics", "codegen_mix_order_reduction"): (
        "kernels that reduce one input in both dimensions"
    ),
    ("inductor_metrics", "rejected_mix_order_reduction_fusion"): "such kernels decided against",
    ("inductor_metrics", "codegen_nested_reduction"): "kernels with a reduction inside another",
    ("inductor", "pattern_matcher_count"): "replacements that the pattern matcher made",
    ("inductor", "pattern_matcher_nodes"): "FX nodes that these replaced",
    ("inductor", "extern_calls"): "calls of library kernels (mm, convolution) in generated code",
    ("inductor", "fxgraph_cache_hit"): "graphs found in the FX graph cache",
    ("inductor", "fxgraph_cache_miss"): "graphs not found there",
    ("inductor", "fxgraph_cache_bypass"): "graphs that cannot be kept there",
    ("inductor", "fxgraph_lookup_write_file"): "modules written again from a cache entry",
    ("inductor", "async_compile_cache_hit"): "Triton kernels that the process had compiled before",
    ("inductor", "async_compile_cache_miss"): "Triton kernels handed to the compile workers",
    ("inductor", "triton_bundler_save_kernel"): "Triton binaries kept with a graph's cache entry",
    ("inductor", "triton_bundler_read_and_emit_kernel"): "Triton binaries taken from one",
    ("inductor", "select_algorithm_autotune"): "products whose implementation was chosen by timing",
    ("inductor", "select_algorithm_precompile"): "candidates compiled for that",
    ("inductor", "cudagraph_skips"): "graphs that could not be CUDA graphs",
    ("inductor", "cudagraph_recorded_non_static_inputs"): (
        "inputs copied into CUDA graphs at each replay"
    ),
    ("inductor", "cudagraph_partitions"): "pieces of graphs that became CUDA graphs",
    ("inductor", "decompose_mm"): "small products computed without a library",
    ("inductor", "decompose_bmm"): "small batched products computed without a library",
    ("inductor", "decompose_addmm"): "small products with bias computed without a library",
    ("aot_autograd", "total"): "graphs given to AOTAutograd",
    ("aot_autograd", "ok"): "those of them that it compiled",
    ("aot_autograd", "not_ok"): "those of them that failed",
    ("aot_autograd", "autograd_cache_hit"): "graphs found in the AOTAutograd cache",
    ("aot_autograd", "autograd_cache_miss"): "graphs not found there",
    ("aot_autograd", "autograd_cache_guard_miss"): "graphs found with shapes that do not fit",
    ("aot_autograd", "autograd_cache_bypass"): "graphs that cannot be kept there",
    ("aot_autograd", "autograd_cache_saved"): "graphs put there",
    ("stats", "calls_captured"): "calls that Dynamo put into graphs",
    ("stats", "unique_graphs"): "graphs that Dynamo made",
    ("frames", "total"): "functions that Dynamo began to compile",
    ("frames", "ok"): "those of them that it compiled",
}
_GROUPS = {
    "graph_break": "meetings with a graph break of this kind",
    "unimplemented": "meetings with what Dynamo does not support",
    "resumes": "rests of functions, after a break, that were compiled",
    "aten_mm_info": "products of these sizes in the graphs",
    "benchmarking": "kernels timed to choose among them",
}


def meaning(group: str, counter: str) -> str | None:
    """None for counters that nobody has described here."""
    return _COUNTERS.get((group, counter)) or _GROUPS.get(group)


def explained(moved: set[tuple[str, str]]) -> list[str]:
    """``"frames.total: functions that Dynamo began to compile"`` for each that moved, in our order.

    Groups whose counters are messages, or names of functions, are explained once.
    """
    single = [
        f"{group}.{name}: {words}"
        for (group, name), words in _COUNTERS.items()
        if (group, name) in moved
    ]
    groups = {group for group, _ in moved}
    return single + [f"{group}: {words}" for group, words in _GROUPS.items() if group in groups]


# The ledger's rows: what the summary calls each, and what is in it.
_LEDGER = {
    "startup": ("startup", "from the process's start to the first torch.compile"),
    "compile": ("compiling", "Dynamo, Inductor and the compilers of kernels"),
    "captured": ("compiled code", "in calls of graphs, forward and backward"),
    "eager_ops": ("eager ops", "in ops outside the graphs"),
    "data": ("data loading", "waiting in the next() of a DataLoader"),
    "python": ("Python", "the rest: the program's own Python, and whatever it waits for"),
}


def ledger_words(row: str) -> str:
    """``"compiled code"`` for ``"captured"``; a name that is not known here stays as it is."""
    return _LEDGER[row][0] if row in _LEDGER else row.replace("_", " ")


def ledger_meanings(rows: Iterable[str]) -> list[str]:
    """``"data (data loading): waiting in the next() of a DataLoader"`` for each, in our order."""
    known = set(rows)
    lines = []
    for row, (words, what) in _LEDGER.items():
        if row in known:
            also = "" if words.lower() == row.replace("_", " ") else f" ({words})"
            lines.append(f"{row}{also}: {what}")
    return lines
