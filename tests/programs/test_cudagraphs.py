"""What the trees of CUDA graphs do, on a made-up tree and, on a GPU, on torch's."""

import contextlib
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from instrumented_backend.observe.failures import Failures
from instrumented_backend.observe.graphs.cudagraphs import CudaGraphs
from instrumented_backend.observe.messages.skips import skip_reason
from instrumented_backend.records import notes
from instrumented_backend.torch_compat import cudagraphs


class Node:
    """A recording; it fits inputs equal to those that it was made with."""

    def __init__(self, inputs: list[int]) -> None:
        self.inputs = list(inputs)
        self.children: dict[Any, list[Node]] = {}

    def check_invariants(self, inputs: list[int]) -> tuple[Any, Any]:
        inputs.clear()  # torch's takes some out of the list
        return SimpleNamespace(name="StaticInputIdxMismatch"), lambda: "why"


def trees() -> Any:
    """A module with what `watch` needs of torch's, and a manager that records."""

    class Manager:
        def __init__(self) -> None:
            self.roots: dict[Any, list[Node]] = {}
            self.current_node: Node | None = None
            self.compile_id, self.mode = "0/0", 1

        def record_function(self, new_inputs: list[int], function_id: Any) -> str:
            node = Node(new_inputs)
            assert node.inputs, "whoever looked before left them alone"
            new_inputs.clear()  # as torch does
            place = self.roots if self.current_node is None else self.current_node.children
            place.setdefault(function_id, []).append(node)
            self.current_node = node
            return "outputs"

        def execute_node(self, node: Node, new_inputs: list[int]) -> str:
            self.current_node = node
            return "outputs again"

    return SimpleNamespace(
        CUDAGraphTreeManager=Manager, CompilationMode=SimpleNamespace(FORWARD=1, BACKWARD=2)
    )


class Function:
    def __init__(self, number: int) -> None:
        self.id = number


def test_recordings_replays_and_recordings_again() -> None:
    module, graphs = trees(), CudaGraphs(Failures())
    undo = cudagraphs._patch_trees(module, graphs.recorded, graphs.replayed, contextlib.nullcontext)
    manager = module.CUDAGraphTreeManager()
    small, large = Function(0), Function(1)
    assert manager.record_function([1], small) == "outputs"
    first = manager.current_node
    for _ in range(5):
        assert manager.execute_node(first, [1]) == "outputs again"
    manager.current_node = None
    manager.record_function([1, 2], large)  # the same graph for other sizes
    manager.current_node = None
    manager.record_function([3], small)  # at the same place: an input has moved
    manager.record_function([3], small)  # after another one
    manager.mode = 2
    manager.current_node = None
    manager.record_function([4], Function(2))
    undo()
    manager.record_function([4], Function(3))  # not ours to see any more

    found = graphs.report()
    assert (found.recorded, found.replayed, found.skipped) == (5, 5, {})
    assert found.re_recorded == {
        "new sizes": 1,
        "a parameter or static input has moved in memory": 1,
        "another graph ran before it": 1,
    }
    assert found.had_new_sizes and not found.had_mutated_inputs
    forward, backward = found.graphs
    assert (forward.compile_id, forward.direction, forward.recorded) == ("0/0", "forward", 4)
    assert (backward.direction, backward.recorded, backward.replayed) == ("backward", 1, 0)


def test_failures_of_ours_never_reach_the_program() -> None:
    module, failures = trees(), Failures()
    graphs = CudaGraphs(failures)
    cudagraphs._patch_trees(
        module, graphs.recorded, graphs.replayed, lambda: failures.guard("CUDA graphs")
    )
    manager = module.CUDAGraphTreeManager()
    del manager.mode
    assert manager.record_function([1], Function(0)) == "outputs"
    assert manager.execute_node(manager.current_node, [1]) == "outputs again"
    (note,) = failures.notes
    assert note.text.startswith("lost: CUDA graphs: AttributeError")
    assert not graphs.report().were_tried


def test_skips_come_from_torchs_own_log() -> None:
    """Whether or not the module of the trees is ever imported: only a recording needs it."""
    from torch._inductor import cudagraph_utils

    graphs = CudaGraphs(Failures())
    undo = cudagraphs.watch(graphs.recorded, graphs.replayed, graphs, contextlib.nullcontext)
    cudagraph_utils.log_cudagraph_skip_and_bump_counter("skipping cudagraphs due to cpu device (x)")
    cudagraph_utils.maybe_warning_due_to_dynamic_shape(dict.fromkeys(range(1000)), 1)
    undo()
    cudagraph_utils.log_cudagraph_skip_and_bump_counter("skipping cudagraphs due to a later one")
    found = graphs.report()
    assert found.skipped == {"cpu device (x)": 1} and found.recorded == 0


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("skipping cudagraphs due to mutated inputs (1 instances)", "mutated inputs (1 instances)"),
        (
            "skipping cudagraphs due to mutated inputs (1 instances). Found from : \n"
            '   File "/home/me/model.py", line 5, in forward\n    x.add_(1)\n',
            "mutated inputs (1 instances) at /home/me/model.py:5",
        ),
        ("something else", "something else"),
    ],
)
def test_skip_reason(message: str, reason: str) -> None:
    found = skip_reason(message)
    assert found.text == reason
    assert (found.code == notes.MUTATED_INPUTS) == reason.startswith("mutated inputs")


def test_the_handler_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    graphs = CudaGraphs(Failures())
    logger = logging.Logger("a logger of this test")
    logger.addHandler(graphs)
    logger.warning("skipping cudagraphs due to a test")
    assert capsys.readouterr() == ("", "")
    assert graphs.report().skipped == {"a test": 1}
