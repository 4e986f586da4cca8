"""The user's line of each node of a graph."""

from pathlib import Path

import torch
from torch.fx import Graph, GraphModule

from instrumented_backend.kernels.sidecar import GraphLines
from instrumented_backend.observe.code.kernel_lines import add_own_lines
from instrumented_backend.observe.code.node_lines import MAX_NODES, NodeLines, lines_of_nodes
from instrumented_backend.records import KernelRecord

TORCH = str(Path(torch.__file__).parent / "nn" / "modules" / "linear.py")


def graph(*stacks: str | None) -> GraphModule:
    """A node for each stack, called ``relu``, ``relu_1``, ``relu_2``, ..."""
    made = Graph()
    value = made.placeholder("x")
    value.meta["stack_trace"] = 'File "/home/me/never.py", line 1, in f'
    for stack in stacks:
        value = made.call_function(torch.relu, (value,))
        if stack is not None:
            value.meta["stack_trace"] = stack
    made.output(value)
    return GraphModule(torch.nn.Module(), made)


def frame(file: str, line: int) -> str:
    return f'  File "{file}", line {line}, in f\n    return torch.relu(x)\n'


MODEL = "/home/me/model.py"


def test_the_innermost_line_that_is_the_users() -> None:
    outer, inner = frame("/home/me/train.py", 3), frame(MODEL, 14)
    lines = NodeLines(graph(outer + inner + frame(TORCH, 134), outer, None))
    assert lines.by_name() == {"relu": f"{MODEL}:14", "relu_1": "/home/me/train.py:3"}


def test_what_has_no_line() -> None:
    assert NodeLines(graph(None, "nothing that is a stack", frame(TORCH, 134))).by_name() == {}


def test_a_path_with_quotes_and_spaces() -> None:
    found = NodeLines(graph(frame('/home/me/a "b", line 7/m.py', 9))).by_name()
    assert found == {"relu": '/home/me/a "b", line 7/m.py:9'}


def test_code_without_text_stands_for_its_caller() -> None:
    made = '  File "<string>", line 2, in made\n'
    nodes = graph(frame(MODEL, 14) + made, made).graph.nodes
    assert lines_of_nodes(nodes)["relu"] == f"{MODEL}:14"
    assert lines_of_nodes(nodes)["relu_1"] == "<string>:2"  # better than nothing


def test_nested_graphs() -> None:
    """Such as a checkpointed block's; ``relu`` is in both, on two lines."""
    gm = graph(frame(MODEL, 14), frame(MODEL, 15))
    gm.block = graph(*(frame(MODEL, line) for line in (24, 15, 26)))
    assert NodeLines(gm).by_name() == {"relu_1": f"{MODEL}:15", "relu_2": f"{MODEL}:26"}
    before, after = NodeLines(gm).kept({}), graph(frame(MODEL, 114), frame(MODEL, 115))
    after.block = graph(*(frame(MODEL, line) for line in (124, 115, 126)))
    own = NodeLines(after).own_places(before)
    assert own == {f"{MODEL}:{line}": [f"{MODEL}:{100 + line}"] for line in (14, 15, 24, 26)}


def test_a_graph_without_end_is_kept_small() -> None:
    lines = NodeLines(graph(*[frame(MODEL, 14)] * (MAX_NODES + 1)))
    assert f"relu_{MAX_NODES - 1}" in lines.by_name()
    assert f"relu_{MAX_NODES}" not in lines.by_name()
    assert len(lines._packed) < 5 * MAX_NODES


# --- Of a graph that a cache has -----------------------------------------------------------------


def before_and_after() -> tuple[GraphLines, NodeLines]:
    """Lines 3, 3 and 5 when it was compiled; 13, 13 and 15 now. ``mm`` is Inductor's name."""
    before = NodeLines(graph(*(frame(MODEL, line) for line in (3, 3, 5)), None))
    after = NodeLines(graph(*(frame(MODEL, line) for line in (13, 13, 15)), None))
    return before.kept({"mm": f"{MODEL}:5", "t": "/home/me/other.py:1"}), after


def lines_of(kernel: KernelRecord, kept: GraphLines | None, nodes: NodeLines) -> list[str]:
    add_own_lines([kernel], kept, nodes)
    return [line.removeprefix(f"{MODEL}:") for line in kernel.source_lines]


def test_a_kernel_has_the_lines_of_this_program() -> None:
    kept, nodes = before_and_after()
    old = [f"{MODEL}:5", f"{MODEL}:3", "/home/me/other.py:1"]
    kernel = KernelRecord("cpp_fused_relu_0", "cpp", source_lines=old)
    assert lines_of(kernel, kept, nodes) == ["15", "13"]


def test_another_graph_to_dynamo_tells_no_lines() -> None:
    kept, _ = before_and_after()
    other = NodeLines(graph(frame(MODEL, 99)))
    kernel = KernelRecord("cpp_fused_relu_0", "cpp", source_lines=[f"{MODEL}:5"])
    assert lines_of(kernel, kept, other) == []


def test_an_extern_call_has_the_line_of_its_own_op() -> None:
    kept, nodes = before_and_after()

    def call(direction: str, *names: str) -> list[str]:
        kernel = KernelRecord("extern_kernels.mm", "extern", direction=direction)
        kernel.fx_nodes = list(names)
        return lines_of(kernel, kept, nodes)

    assert call("forward", "relu", "relu_2") == ["15"]
    assert call("backward", "relu", "mul_3", "mm") == ["15"]  # and not the one it reads from
    assert call("backward", "t", "relu_3") == []
    # Of a pass of Inductor's own: what it reads is of another line.
    assert call("backward", "relu_2", "mm_default") == []
    assert call("forward", "relu_2", "mm_default") == ["15"]


def test_a_kernel_that_plain_inductor_compiled() -> None:
    """Nobody kept its lines: its nodes are named in a comment."""
    _, nodes = before_and_after()
    kernel = KernelRecord("cpp_fused_relu_0", "cpp", fx_nodes=["relu_2", "relu", "relu_1"])
    assert lines_of(kernel, None, nodes) == ["15", "13"]
