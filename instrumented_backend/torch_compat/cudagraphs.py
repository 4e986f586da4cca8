"""CUDA graphs: what Inductor's trees record, replay and skip."""

import functools
import logging
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any

from instrumented_backend.torch_compat.hooks import (
    Undo,
    after_import,
    replace_attribute,
    together,
)

# Private names, by the versions of torch that have them.
NAMES = {
    "2.11 to 2.15": (
        "torch._inductor.cudagraph_trees.CUDAGraphNode.check_invariants",
        "torch._inductor.cudagraph_trees.CUDAGraphNode.children",
        "torch._inductor.cudagraph_trees.CUDAGraphTreeManager.compile_id",
        "torch._inductor.cudagraph_trees.CUDAGraphTreeManager.current_node",
        "torch._inductor.cudagraph_trees.CUDAGraphTreeManager.execute_node",
        "torch._inductor.cudagraph_trees.CUDAGraphTreeManager.mode",
        "torch._inductor.cudagraph_trees.CUDAGraphTreeManager.record_function",
        "torch._inductor.cudagraph_trees.CUDAGraphTreeManager.roots",
        "torch._inductor.cudagraph_trees.CompilationMode.BACKWARD",
        "torch._inductor.cudagraph_utils.cudagraphs_log",
    ),
}

_CUDAGRAPH_TREES = "torch._inductor.cudagraph_trees"


def watch(
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
    return together(undos)


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

    return together(
        [
            replace_attribute(manager, "record_function", record_function),
            replace_attribute(manager, "execute_node", execute_node),
        ]
    )


def _mismatch(trees: Any, inputs: Any, function_id: Any) -> str | None:
    """Why the last recording of the function after the same graph can't be replayed."""
    node = trees.current_node
    siblings = (trees.roots if node is None else node.children).get(function_id)
    if not siblings:
        return None
    # On a copy: where the recording fits after all, the method takes inputs out of the list.
    status = siblings[-1].check_invariants(list(inputs))[0]
    return str(status.name)


def pool_bytes() -> int | None:
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
