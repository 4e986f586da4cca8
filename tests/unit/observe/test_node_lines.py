"""The user's line of each node of a graph."""

from pathlib import Path

import torch
from torch.fx import Graph, GraphModule

from instrumented_backend.observe.graphs.node_lines import MAX_NODES, NodeLines

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


def test_the_innermost_line_that_is_the_users() -> None:
    outer, inner = frame("/home/me/train.py", 3), frame("/home/me/model.py", 14)
    lines = NodeLines(graph(outer + inner + frame(TORCH, 134), outer, None))
    assert lines.of(["relu"]) == "/home/me/model.py:14"
    assert lines.of(["relu_1"]) == "/home/me/train.py:3"
    # Of several, the last: what the code generator lists before it is what the op reads.
    assert lines.of(["relu_1", "relu"]) == "/home/me/model.py:14"
    assert lines.of(["relu", "mm_1"]) == "/home/me/model.py:14"


def test_what_has_no_line() -> None:
    lines = NodeLines(graph(None, "nothing that is a stack", frame(TORCH, 134)))
    assert [lines.of([name]) for name in ("x", "relu", "relu_1", "relu_2", "gone")] == [None] * 5
    assert lines.of([]) is None


def test_a_path_with_quotes_and_spaces() -> None:
    assert NodeLines(graph(frame('/home/me/a "b", line 7/m.py', 9))).of(["relu"]) == (
        '/home/me/a "b", line 7/m.py:9'
    )


def test_a_graph_without_end_is_kept_small() -> None:
    lines = NodeLines(graph(*[frame("/home/me/model.py", 14)] * (MAX_NODES + 1)))
    assert lines.of([f"relu_{MAX_NODES - 1}"]) == "/home/me/model.py:14"
    assert lines.of([f"relu_{MAX_NODES}"]) is None
    assert len(lines._packed) < 5 * MAX_NODES


MODEL = "/home/me/model.py"


def made(*places: tuple[str, int], names: str = "relu") -> NodeLines:
    gm = graph(*(frame(file, line) for file, line in places))
    for node in gm.graph.nodes:
        if node.op == "call_function":
            node.name = node.name.replace("relu", names)
    return NodeLines(gm)


def test_lines_are_found_again_after_an_edit() -> None:
    then = made((MODEL, 11), (MODEL, 12), (MODEL, 11))
    anchors = then.anchors()
    assert list(anchors) == [f"{MODEL}:11", f"{MODEL}:12"]
    moved = made((MODEL, 21), (MODEL, 22), (MODEL, 21))
    assert moved.found_again(anchors) == {
        f"{MODEL}:11": f"{MODEL}:21",
        f"{MODEL}:12": f"{MODEL}:22",
    }
    # A variable has a new name, and so have its nodes; or it is another program.
    other = made(("/me/b.py", 3), ("/me/b.py", 4), ("/me/b.py", 3), names="gelu")
    assert other.found_again(anchors) == {f"{MODEL}:11": "/me/b.py:3", f"{MODEL}:12": "/me/b.py:4"}


def test_a_line_whose_node_is_gone_is_not_known() -> None:
    anchors = made((MODEL, 11), (MODEL, 12)).anchors()
    shorter = made((MODEL, 21))
    assert shorter.found_again(anchors) == {f"{MODEL}:11": f"{MODEL}:21", f"{MODEL}:12": None}
