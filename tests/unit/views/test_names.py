"""What tables call a graph: by the module that was compiled, where its function says little."""

import pytest
from sample_report import sample

from instrumented_backend.records import CompiledRecord
from instrumented_backend.views.names import Names

CONTAINER = "/torch/nn/modules/container.py"


def names(*compiled: CompiledRecord) -> Names:
    report = sample()
    report.compiled = list(compiled)
    return Names(report)


def module(
    number: int, path: str | None, target: str = "Sequential", line: int = 5
) -> CompiledRecord:
    return CompiledRecord(number, "torch.compile(x)", "/me/train.py", line, target, path)


@pytest.mark.parametrize(
    ("path", "target", "function", "name"),
    [
        # A module of one's own: its forward is in one's own file.
        ("Model.blocks.3", "Block", "forward", "Model.blocks.3.forward"),
        # One of torch's own, whose function is the class.
        ("Model.head", "Sequential", "Sequential", "Model.head"),
        # What is compiled for it after a break.
        ("Model.head", "Block", "torch_dynamo_resume_in_forward_at_5", None),
        # A function is no module.
        (None, "step", "step", "step"),
    ],
)
def test_a_graphs_name(path: str | None, target: str, function: str, name: str | None) -> None:
    found = names(module(0, path, target))
    assert found.function(0, function) == (name or function)
    assert found.of_graph(0, function) == (name or function)  # the sample's graph 0


def test_what_is_unknown_keeps_its_function() -> None:
    found = names(module(0, "Model"))
    assert found.function(None, "forward") == "forward"
    assert found.function(7, "forward") == "forward"
    assert found.of_graph(99, "forward") == "forward" and found.of_graph(None, None) is None


def test_two_of_one_name_at_one_line_have_their_numbers() -> None:
    """A loop's modules that no model has; at other lines, the place tells them apart."""
    found = names(*(module(n, "Sequential") for n in (0, 1)), module(2, "Sequential", line=9))
    assert [found.function(n, "Sequential") for n in range(3)] == [
        "Sequential #0",
        "Sequential #1",
        "Sequential",
    ]


def test_the_place_of_torchs_own_module_is_that_of_torch_compile() -> None:
    found = names(module(0, "Model.head"), module(1, "Model.block", "Block"), module(2, None))
    torchs = ("Sequential", CONTAINER, 254)
    assert found.place(0, *torchs) == ("/me/train.py", 5)
    assert found.place(1, "forward", "/me/model.py", 12) == ("/me/model.py", 12)
    assert found.place(2, *torchs) == found.place(None, *torchs) == (CONTAINER, 254)
