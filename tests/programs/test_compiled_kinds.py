"""What else may be given to torch.compile: coroutines, TorchScript, exported programs."""

import pytest
from programs import RunProgram

pytestmark = pytest.mark.full
PROGRAM = """
    import asyncio, warnings
    import torch
    from torch._dynamo import bytecode_transformation
    # Dynamo gives a coroutine's frame one slot too few: what lies behind it is overwritten, by any
    # backend, and some processes end in a segmentation fault (PYTHONMALLOC=debug shows it in all).
    needed = bytecode_transformation.stacksize_analysis
    bytecode_transformation.stacksize_analysis = lambda code: needed(code) + 1
    warnings.simplefilter("ignore")
    async def coroutine(x):
        return x.sin() + 1
    class Model(torch.nn.Module):
        def forward(self, x):
            return x.cos() + 1
    class Static(torch.nn.Module):
        @staticmethod
        def forward(x):
            return x.tan() + 1
    x = torch.ones(2)
    given = [GIVEN]
    for calls, what in enumerate(given, 1):
        compiled = torch.compile(what, backend="instrumented")
        for _ in range(calls):
            found = compiled(x)
            if what is coroutine:
                found = asyncio.run(found)
        assert found.shape == x.shape
"""


@pytest.mark.parametrize(
    "given",
    [
        ("coroutine", "torch.jit.trace(Model(), x)", "Static()"),
        ("torch.jit.trace(Model(), x)", "Static()"),
        ("Static()", "torch.export.export(Model(), (x,)).module()", "coroutine"),
    ],
    ids=["coroutine", "traced", "exported"],
)
def test_each_is_noted_with_its_calls(run_program: RunProgram, given: tuple[str, ...]) -> None:
    """What of it torch compiles differs by version; what is said goes by its graphs."""
    done = run_program(PROGRAM.replace("GIVEN", ", ".join(given)), timeout=600)
    assert "lost" not in done.report["note_codes"], done.report["notes"]
    records = done.report["compiled"]
    assert [record["calls"] for record in records] == list(range(1, len(given) + 1))
    graph_calls = {graph["graph"]: graph["calls"] for graph in done.report["graphs"]}
    for record in records:
        ran = sum(graph_calls[graph] for graph in record["graphs"])
        assert record["graph_calls"] == ran
        assert (record["outcome"] == "compiled") == (ran > 0)
        assert ran > 0 or record["reason"]
    assert records[-1]["outcome"] == "compiled"
