"""What else may be given to torch.compile: coroutines, TorchScript, exported programs."""

import pytest
import torch
from packaging.version import Version
from programs import RunProgram

pytestmark = pytest.mark.full
PROGRAM = """
    import asyncio, warnings
    import torch
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


# With plain Inductor, too. Torch 2.11 and 2.14 do not.
COROUTINES = pytest.mark.skipif(
    Version("2.12") <= Version(torch.__version__) < Version("2.14"),
    reason="torch 2.12 and 2.13 end in a segmentation fault where a coroutine was compiled",
)


# Not all in one program: beside an exported program, a coroutine that was compiled with plain
# Inductor ends torch 2.14.1 with a segmentation fault, after the program's last line.
@pytest.mark.parametrize(
    "given",
    [
        pytest.param(("coroutine", "torch.jit.trace(Model(), x)", "Static()"), marks=COROUTINES),
        ("torch.jit.trace(Model(), x)", "Static()"),
        ("Static()", "torch.export.export(Model(), (x,)).module()"),
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
