"""The trees of CUDA graphs are as our patches take them to be."""

import contextlib
import dataclasses
import inspect
import logging

import torch

from instrumented_backend.torch_compat import cudagraphs


def test_trees_of_cuda_graphs_can_be_patched() -> None:
    from torch._inductor import cudagraph_trees, cudagraph_utils

    manager = cudagraph_trees.CUDAGraphTreeManager
    record, execute = manager.record_function, manager.execute_node
    assert list(inspect.signature(record).parameters) == ["self", "new_inputs", "function_id"]
    assert list(inspect.signature(execute).parameters) == ["self", "node", "new_inputs"]
    attributes = inspect.getsource(manager)
    for name in ("self.compile_id =", "self.mode", "self.roots:", "self.current_node = node"):
        assert name in attributes
    node = inspect.getsource(cudagraph_trees.CUDAGraphNode)
    assert "self.children:" in node and "def check_invariants" in node
    assert cudagraph_trees.CompilationMode.BACKWARD
    assert [field.name for field in dataclasses.fields(cudagraph_trees.FunctionID)] == ["id"]
    skips = logging.NullHandler()
    undo = cudagraphs.watch(lambda *_: None, lambda _: None, skips, contextlib.nullcontext)
    assert (
        manager.record_function is not record and skips in cudagraph_utils.cudagraphs_log.handlers
    )
    undo()
    assert (manager.record_function, manager.execute_node) == (record, execute)
    assert skips not in cudagraph_utils.cudagraphs_log.handlers
    assert cudagraphs.pool_bytes() is None or torch.cuda.is_available()
    assert "include_traces" in inspect.signature(torch.cuda.memory_snapshot).parameters
