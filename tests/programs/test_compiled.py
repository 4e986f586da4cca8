"""What became of each torch.compile: its graphs, its calls, its name, and who shares what."""

import re

import pytest
from asked import SETUP, first_line, line_of, only
from programs import RunProgram

from instrumented_backend.records import notes

WITH_TABLES = {"INSTRUMENTED_TABLES": "summary,compiled,graphs,compile", "COLUMNS": "200"}

MODEL = """\
import sys, torch
from torch import nn
x = torch.ones(2, 4)

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
"""


def test_each_block_of_a_model(run_forked: RunProgram) -> None:
    """The blocks share their code: Dynamo calls the second's graph a recompilation, if it has one,
    and the third runs the others' graphs."""
    program = f"""{MODEL}
model = Model()
for block in model.blocks:
    block.compile(backend="instrumented")  # asked
model(x), model(x)
"""
    done = run_forked(program, env=WITH_TABLES)
    records = done.report["compiled"]
    assert [record["path"] for record in records] == [f"Model.blocks.{i}" for i in range(3)]
    assert {record["line"] for record in records} == {line_of(program, "asked")}
    assert [record["calls"] for record in records] == [2, 2, 2]
    assert [record["eager_calls"] for record in records] == [0, 0, 0]
    assert {record["outcome"] for record in records} == {"compiled"}
    assert sum(graph["calls"] for graph in done.report["graphs"]) == 6
    assert records[2]["graphs"] == [] and records[2]["shared_graphs"]
    assert done.report["summary"]["recompiles"] == 0 and done.report["recompiles"] == []
    assert "Model.blocks.0.forward" in done.stderr
    assert not first_line(done).startswith(("nothing", "not compiled", "ran eagerly"))


@pytest.mark.full
def test_two_sequentials(run_forked: RunProgram) -> None:
    """To Dynamo they are one function, recompiled."""
    program = (
        SETUP
        + """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        first, second = nn.Sequential(nn.Linear(4, 8)), nn.Sequential(nn.Linear(8, 4), nn.Tanh())
        self.encoder = torch.compile(first, backend="instrumented")  # first
        self.decoder = torch.compile(second, backend="instrumented")  # second

    def forward(self, x):
        return self.decoder(self.encoder(x))

Model()(x)
"""
    )
    done = run_forked(program, env=WITH_TABLES)
    one, other = done.report["compiled"]
    assert (one["path"], other["path"]) == ("Model.encoder", "Model.decoder")
    assert (one["graphs"], other["graphs"]) == ([0], [1])
    assert (one["line"], other["line"]) == (line_of(program, "first"), line_of(program, "second"))
    assert [graph["compiled"] for graph in done.report["graphs"]] == [0, 1]
    assert done.report["summary"]["recompiles"] == 0
    assert done.report["compile"]["later_s"] == 0
    # In each of the three tables, and with the program's own lines.
    assert len(re.findall(r"Model\.encoder|Model\.decoder", done.stderr)) == 6
    assert f"program0.py:{other['line']}" in done.stderr and "container.py" not in done.stderr


@pytest.mark.full
def test_a_recompilation_of_one_module(run_forked: RunProgram) -> None:
    done = run_forked(f"""{MODEL}
model = torch.compile(nn.Sequential(nn.Linear(4, 4)), backend="instrumented")
model(x), model(x[:1].double().float()), model(x.unsqueeze(0))
""")
    assert done.report["summary"]["recompiles"] >= 1
    assert done.report["recompiles"][0]["compiled"] == 0


def test_one_model_twice(run_forked: RunProgram) -> None:
    done = run_forked(f"""{MODEL}
block = Block()
first = torch.compile(block, backend="instrumented")
second = torch.compile(block, backend="instrumented")
first(x), second(x), second(x)
""")
    first, second = done.report["compiled"]
    assert (first["calls"], second["calls"]) == (1, 2)
    assert first["graphs"] == [0] and second["shared_graphs"] == [0]
    assert (first["outcome"], second["outcome"]) == ("compiled", "compiled")


@pytest.mark.full
def test_a_function_that_another_one_takes_in(run_forked: RunProgram) -> None:
    done = run_forked(f"""{SETUP}
@torch.compile(backend="instrumented", options={{"epilogue_fusion": True}})
def inner(x):
    return x.mm(x.t())

@torch.compile(backend="instrumented")
def outer(x):
    return inner(x).t()

outer(x)
""")
    inner, outer = done.report["compiled"]
    assert (inner["outcome"], inner["calls"]) == ("inlined", 0)
    assert (outer["outcome"], outer["calls"]) == ("compiled", 1)
    assert first_line(done).startswith("1 graph, 1 call")


def test_the_recompile_limit(run_forked: RunProgram) -> None:
    program = (
        SETUP
        + """
torch._dynamo.config.recompile_limit = 2
def scale(x, n):
    return x.mm(x.t()) if n >= 0 else x

scale = torch.compile(scale, backend="instrumented", dynamic=False)  # asked
for n in range(10):
    scale(x, n)
"""
    )
    done = run_forked(program)
    record = only(done)
    assert record["outcome"] == "partly eager" and record["reason_code"] == notes.RECOMPILE_LIMIT
    # Two calls found a version of their own; the third was refused one.
    assert (record["calls"], record["eager_calls"], record["first_eager_call"]) == (10, 8, 3)
    said = first_line(done)
    assert said.startswith("ran eagerly: torch.compile(scale)")
    assert f":{line_of(program, 'asked')} was called 10 times and ran eagerly in 8 of them" in said


@pytest.mark.full
def test_a_stance_for_a_while(run_forked: RunProgram) -> None:
    done = run_forked(f"""{SETUP}
step = torch.compile(lambda x: x.mm(x.t()), backend="instrumented")
step(x), step(x)
with torch.compiler.set_stance("force_eager"):
    step(x), step(x), step(x)
step(x)
""")
    record = only(done)
    assert (record["outcome"], record["reason_code"]) == ("partly eager", notes.STANCE)
    assert (record["calls"], record["eager_calls"], record["graph_calls"]) == (6, 3, 3)
    assert "for 3 of them" in first_line(done)


def test_a_break_leaves_eager_calls_unknown(run_forked: RunProgram) -> None:
    """A call runs two graphs, or one, or none."""
    done = run_forked(f"""{SETUP}
def step(x):
    y = x.mm(x.t())
    torch._dynamo.graph_break()
    return y.mm(y)

step = torch.compile(step, backend="instrumented")
step(x), step(x)
""")
    record = only(done)
    assert (record["calls"], record["graph_calls"], record["eager_calls"]) == (2, 4, None)
    assert record["graphs"] == [0, 1] and record["outcome"] == "compiled"
    assert record["pct_ops"] == 100 and record["captured_ops"] == 2 * 3  # t, and mm twice


@pytest.mark.full
def test_a_copy_is_another_one(run_forked: RunProgram) -> None:
    program = f"""{MODEL}
import copy
block = torch.compile(Block(), backend="instrumented")
ema = copy.deepcopy(block)  # copied
block(x), ema(x), ema(x)
"""
    done = run_forked(program)
    block, ema = done.report["compiled"]
    assert (block["calls"], ema["calls"]) == (1, 2)
    assert ema["call"] == "copy.deepcopy(block)" and ema["line"] == line_of(program, "copied")


@pytest.mark.full
def test_a_child_compiles_what_its_parent_asked_for(run_forked: RunProgram) -> None:
    done = run_forked(f"""{SETUP}
import os
step = torch.compile(lambda x: x.mm(x.t()), backend="instrumented")
done = torch.compile(lambda x: x.mm(x.t()).t(), backend="instrumented")
done(x)
if not os.fork():
    step(x), done(x)
    raise SystemExit
os.wait()
""")
    child, parent = sorted(done.reports, key=lambda report: len(report["compiled"]))
    assert [record["calls"] for record in parent["compiled"]] == [0, 1]
    # Of what the parent compiled the child has no graph to show.
    assert [(record["calls"], record["outcome"]) for record in child["compiled"]] == [
        (1, "compiled")
    ]


def test_calls_from_threads_are_all_counted(run_forked: RunProgram) -> None:
    done = run_forked(f"""{SETUP}
import threading
step = torch.compile(lambda x: x.mm(x.t()), backend="instrumented")
step(x)
def work():
    for _ in range(500):
        step(x)
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
""")
    record = only(done)
    assert (record["calls"], record["graph_calls"], record["eager_calls"]) == (2001, 2001, 0)


@pytest.mark.full
def test_what_the_program_sees_is_torchs(run_forked: RunProgram) -> None:
    """Types, attributes, pickles and copies are those without us."""
    seen = """
import copy, pickle, torch
from torch import nn
from torch._dynamo.eval_frame import OptimizedModule
def of(thing):
    return sorted(name for name in vars(thing) if not name.startswith("__"))
block, step = nn.Linear(4, 4), lambda x: x + 1
model, function = torch.compile(block, backend=BACKEND), torch.compile(step, backend=BACKEND)
assert isinstance(model, OptimizedModule) and model._orig_mod is block
print(type(model), type(function), of(model), of(function), of(model.dynamo_ctx))
print(function.__wrapped__ is step, function.__name__, list(model.state_dict()))
print(type(copy.deepcopy(model)), type(pickle.loads(pickle.dumps(block))))
block.compile(backend=BACKEND)
print(type(block), of(block), type(block._compiled_call_impl))
print(torch.compiler.set_stance.__module__, torch._dynamo.decorators._set_stance.__name__)
"""
    ours, theirs = (
        run_forked(seen.replace("BACKEND", repr(name)), env={"INSTRUMENTED_TABLES": "none"})
        for name in ("instrumented", "inductor")
    )
    assert ours.stdout == theirs.stdout and "OptimizedModule" in ours.stdout


@pytest.mark.full
def test_a_model_may_go_when_the_program_lets_it(run_forked: RunProgram) -> None:
    """Neither we nor the variables of the frames that we looked through keep it."""
    done = run_forked(f"""{MODEL}
import gc, weakref
def main():
    model = Model()
    ref = weakref.ref(model)
    for block in model.blocks:
        block.compile(backend="instrumented")
    del model, block
    gc.collect()
    return ref()
print(main())
""")
    assert done.stdout == "None\n"
    assert [r["path"] for r in done.report["compiled"]] == [f"Model.blocks.{i}" for i in range(3)]
