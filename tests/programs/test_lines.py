"""The section `lines`: its sums are the summary's, and each line's figures an oracle's."""

import json
import math
import re
from typing import Any

import pytest
from parsed_page import Parsed
from programs import RunProgram

from instrumented_backend.records import Report
from instrumented_backend.views.page.page import render_page

PROGRAMS = """
    import json, sys, torch, torch._dynamo
    import torch.utils.checkpoint
    import instrumented_backend as ib

    def compiled(function, **options):
        return torch.compile(function, backend="instrumented", **options)

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(8, 8)
        def forward(self, x):
            x = self.fc(x).relu()
            if x.sum() > 1e9:
                x = x * 2
            return torch.nn.functional.dropout(x, 0.1)

    def training():
        model = torch.nn.Sequential(Layer(), Layer())
        optimizer = torch.optim.AdamW(model.parameters())
        step = compiled(model)
        for _ in range(4):
            loss = step(torch.ones(2, 8)).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    def inference():
        with torch.no_grad():
            function = compiled(lambda x: (x @ x).softmax(0))
            for _ in range(3):
                function(torch.ones(4, 4)).sum().item()

    def recompiles():
        function = compiled(lambda x, n: x.sin() * n, dynamic=False)
        for size in (2, 3, 4):
            function(torch.ones(size), size)

    def checkpoints():
        def block(x):
            return x.sin().relu()
        def function(x):
            return torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False).sum()
        step = compiled(function)
        for _ in range(2):
            step(torch.ones(4, requires_grad=True)).backward()

    def skipped():
        def function(x):
            with open("/dev/null"):
                print("hi", file=sys.stderr)
                return x.add(1).mul(2)
        step = compiled(function)
        for _ in range(2):
            step(torch.ones(3))

    def no_file():
        names = {"compiled": compiled, "torch": torch}
        exec("def f(x):\\n    return x.sin().cos()\\nf = compiled(f)", names)
        for _ in range(2):
            names["f"](torch.ones(3)).exp()

    reports = []
    for program in (training, inference, recompiles, checkpoints, skipped, no_file):
        torch._dynamo.reset()
        ib.reset()
        program()
        reports.append(ib.report().to_json())
    json.dump(reports, open("reports.json", "w"))
"""


@pytest.mark.full
@pytest.mark.parametrize("mode", ["always", "auto"])
def test_sums_are_the_summarys(run_forked: RunProgram, tmp_path: Any, mode: str) -> None:
    run_forked(PROGRAMS, env={"INSTRUMENTED_OPS": mode})
    texts = json.loads((tmp_path / "reports.json").read_text())
    assert len(texts) == 6
    seen = set()
    for text in texts:
        report = Report.from_json(text)
        lines, summary = report.lines, report.summary
        assert summary.captured_ops is not None and summary.total_ops is not None
        assert sum(line.captured_ops or 0 for line in lines) == summary.captured_ops
        eager = summary.total_ops - summary.captured_ops
        assert sum(line.eager_ops or 0 for line in lines) == eager
        us = math.fsum(line.eager_time_us or 0.0 for line in lines)
        captured_us = report.ops.captured.time_us
        assert report.ops.total_time_us is not None and captured_us is not None
        assert us == pytest.approx(report.ops.total_time_us - captured_us, rel=1e-9, abs=1e-3)
        assert sorted(at for line in lines for at in line.breaks) == list(range(len(report.breaks)))
        assert sum(line.recompiles for line in lines) == summary.recompiles
        assert {at for line in lines for at in line.kernels} == set(range(len(report.kernels)))
        seen |= {line.file for line in lines}
        # The page has the same, digit by digit.
        page = Parsed(render_page([report]))
        shown = [one for _, one in page.elements if "data-t" in one]
        assert sum(int(one["data-c"] or 0) for one in shown) == summary.captured_ops
        assert sum(int(one["data-e"] or 0) for one in shown) == eager
        assert math.fsum(float(one["data-t"] or 0) for one in shown) == us
    assert None in seen  # Dynamo keeps no stack of code that has no file


ORACLE = """
    import json, re, sys, torch, torch._dynamo
    from collections import Counter
    from torch.profiler import ProfilerActivity, profile, record_function
    import instrumented_backend as ib

    def helper(x):
        return x.tanh().exp()

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(3))
            self.norm = torch.nn.LayerNorm(8)
        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
                x = helper(x)
            y = x + 1
            z = x.sin()
            y.add_(z)
            y.mul_(2)
            w = self.norm(y).view(-1, 4)
            a, b = w.chunk(2, dim=1)
            return (a.sigmoid() * b).sum()

    # Dynamo's own graph, node by node, under the profiler; each node in a range of its line's name.
    class ByLine(torch.fx.Interpreter):
        def run_node(self, node):
            found = re.findall(r'File "(.*)", line (\\d+)', node.stack_trace or "")
            own = [line for file, line in found if file == __file__]
            with record_function("LINE " + (own[-1] if own else "?")):
                return super().run_node(node)

    def backend(gm, inputs):
        return lambda *args: ByLine(gm).run(*args)

    torch.manual_seed(0)
    model, x = Model(), torch.rand(4, 8)
    oracle = torch.compile(model, backend=backend)
    oracle(x)
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        oracle(x).backward()
    events = prof.events()
    forward, backward = Counter(), Counter()
    made = {}
    for one in (e for e in events if e.name.startswith("LINE")):
        line = one.name.removeprefix("LINE ")
        for op in one.cpu_children:
            forward[line] += 1
        pending = list(one.cpu_children)
        while pending:
            op = pending.pop()
            pending += op.cpu_children
            if op.sequence_nr >= 0:
                start = op.time_range.start
                if op.sequence_nr not in made or made[op.sequence_nr][0] <= start:
                    made[op.sequence_nr] = start, line
    for e in events:
        name = e.name.removeprefix("autograd::engine::evaluate_function: ")
        if name != e.name and "AccumulateGrad" not in name:
            backward[made[e.sequence_nr][1]] += 1
    torch._dynamo.reset()
    step = torch.compile(model, backend="instrumented")
    for _ in range(3):
        step(x).backward()
    json.dump([forward, backward], open("oracle.json", "w"))
"""


@pytest.mark.full
def test_captured_ops_by_line_are_the_profilers(run_forked: RunProgram, tmp_path: Any) -> None:
    """In-place changes and helpers included; three steps of each line's ops."""
    report = run_forked(ORACLE, env={"INSTRUMENTED_OPS": "always"}).report
    forward, backward = json.loads((tmp_path / "oracle.json").read_text())
    assert "?" not in forward and sum(forward.values()) > 15 and sum(backward.values()) > 20
    lines = [line for line in report["lines"] if line["captured_ops"]]
    assert all(line["file"].endswith(".py") for line in lines)
    for name, truth in (("forward_ops", forward), ("backward_ops", backward)):
        found = {str(line["line"]): line[name] for line in lines if line[name]}
        assert found == {line: 3 * count for line, count in truth.items()}


EAGER = """
    import json, os, torch
    from collections import Counter
    from torch.profiler import ProfilerActivity, profile

    # The profiler knows the function of an op: each has one line with ops.
    def first(x):
        return x.add(1).mul(2)
    def second(x):
        return x.exp()
    def third(x):
        return torch.nn.functional.gelu(first(x))

    compiled = torch.compile(lambda x: x.sin(), backend="instrumented")
    def step(x):
        return compiled(third(second(x)))

    x = torch.ones(4)
    step(x)
    with profile(activities=[ProfilerActivity.CPU], with_stack=True) as prof:
        third(second(x))
    prof.export_chrome_trace("trace.json")
    events = [e for e in json.load(open("trace.json"))["traceEvents"] if "dur" in e]
    own = [e for e in events if os.path.basename(__file__) in e["name"]]
    ops = [e for e in events if e.get("cat") == "cpu_op"]
    def inside(one, others):
        return [e for e in others if e is not one
                and e["ts"] <= one["ts"] and one["ts"] + one["dur"] <= e["ts"] + e["dur"]]
    truth = Counter()
    for op in ops:
        if not inside(op, ops):
            innermost = min(inside(op, own), key=lambda e: e["dur"])
            truth[innermost["name"].rpartition(" ")[2]] += 1
    for _ in range(4):
        step(x)
    json.dump(truth, open("oracle.json", "w"))
"""


@pytest.mark.full
def test_eager_ops_by_line_are_the_profilers(run_forked: RunProgram, tmp_path: Any) -> None:
    page = tmp_path / "made" / "page.html"
    variables = {"INSTRUMENTED_OPS": "always", "INSTRUMENTED_HTML": str(page)}
    report = run_forked(EAGER, env=variables).report
    shown = Parsed(page.read_text())
    assert "return x.add(1).mul(2)" in shown.text  # the program's own source
    truth = json.loads((tmp_path / "oracle.json").read_text())
    assert truth == {"first": 2, "second": 1, "third": 1}
    found = {line["function"]: line["eager_ops"] for line in report["lines"] if line["eager_ops"]}
    # Five steps, and the one that was profiled.
    assert {name: found[name] for name in truth} == {name: 6 * n for name, n in truth.items()}


EDITED = """
    import torch, torch.utils.checkpoint
    {edit}
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(8, 8)
        def forward(self, x):
            x = self.fc(x)  # product
            x = x.tan().sigmoid()  # pointwise
            return torch.utils.checkpoint.checkpoint(self.block, x, use_reentrant=False)
        def block(self, x):
            return x.erf()  # again

    step = torch.compile(Model(), backend="instrumented")
    step(torch.ones(4, 8)).sum().backward()
"""


@pytest.mark.full
def test_kernels_of_a_program_that_was_edited(
    run_forked: RunProgram, cold_cache: Any, tmp_path: Any
) -> None:
    """Caches know a graph by what it computes: what they have of it is of the lines before."""
    env = {"TORCHINDUCTOR_CACHE_DIR": str(cold_cache)}
    for number, edit in enumerate(("", "# A comment.\n\n\n")):
        report = run_forked(EDITED.format(edit=edit), env=env).report
        assert {graph["cache"] for graph in report["graphs"]} == {("miss", "hit")[number]}
        text = (tmp_path / f"program{number}.py").read_text().splitlines()
        shown = {
            (kernel["direction"], kernel["kernel_name"]): {
                text[int(line.rpartition(":")[2]) - 1].rpartition("# ")[2]
                for line in kernel["source_lines"]
            }
            for kernel in report["kernels"]
        }
        externs = {key: found for key, found in shown.items() if "extern" in key[1]}
        # What a backward's product reads comes from line "pointwise"; it is the product's all the
        # same.
        assert {direction for direction, _ in externs} == {"forward", "backward"}
        assert all(found == {"product"} for found in externs.values()), shown
        assert all(found <= {"product", "pointwise", "again"} and found for found in shown.values())
        assert any("again" in found for found in shown.values())


KINDS = """
    import contextlib, functools, torch
    import torch.utils.checkpoint

    class Base(torch.nn.Module):
        def forward(self, x):
            return self.inner(x).relu()  # C1

    class Leaf(Base):
        def inner(self, x):
            return self.scaled(
                x,
            )

        def scaled(self, x):
            return x.mul(2)  # C1

    def twice(function):
        @functools.wraps(function)
        def wrapper(*args):
            return function(*args) * 2  # C1
        return wrapper

    @twice
    def decorated(x):
        return x.sin()  # C1

    square, half = lambda x: x * x, lambda x: x / 2  # C2
    made = {}
    exec("def generated(x):\\n    return x.tan()\\n", made)

    def block(x):
        return x.erf()  # C1

    def pieces(x):
        for _ in range(2):
            yield x.square()  # C2

    @torch.compile(backend="instrumented")
    def everything(x, leaf):
        x = decorated(leaf(x))
        x = square(x) + half(x)  # C1
        x = made["generated"](x)  # C1
        x = sum([x.cos() * i for i in range(1, 4)])  # C9
        x = (
            x.round()  # C1
            .clamp(  # C1
                min=0,
            )
        )
        x = x.exp(); x = x.asin()  # C2
        x = functools.reduce(lambda a, b: a + b, [x, x])  # C1
        x = sum(pieces(x))  # C2
        x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
        return {k: v.tanh() for k, v in {"a": x}.items()}["a"]  # C1

    def eagerly(x):
        parts = [x.mul(i) for i in range(3)]  # E3
        x = torch.stack(  # E1
            parts,
            dim=0,
        )
        x = (
            x.exp()  # E1
            .log()  # E1
        )
        x = (lambda t: t.neg())(x); x = x.sign()  # E2
        x = made["generated"](x)  # E1
        x += 1  # E1
        x = functools.reduce(lambda p, q: p + q, [x, x, x])  # E2
        return torch.nn.functional.gelu(x)  # E1

    leaf = Leaf()
    for _ in range(3):
        with contextlib.suppress(ZeroDivisionError):
            everything(torch.ones(2), leaf)
            eagerly(torch.ones(2))
            1 / 0
"""


@pytest.mark.full
def test_lines_of_code_of_many_kinds(run_forked: RunProgram, tmp_path: Any) -> None:
    """The comments count the ops of a call, captured or eager; lines with none have none."""
    report = run_forked(KINDS, env={"INSTRUMENTED_OPS": "always"}).report
    (script,) = tmp_path.glob("program*.py")
    told = {}
    for number, text in enumerate(script.read_text().splitlines(), start=1):
        for kind, ops in re.findall(r"# ([CE])(\d)$", text):
            told[number, kind] = 3 * int(ops)
    found = {}
    for line in report["lines"]:
        assert line["file"] in (str(script), None)
        for kind, ops in (("C", line["forward_ops"]), ("E", line["eager_ops"])):
            # Inputs are made at the bottom.
            if ops and line["function"] != "<module>":
                found[line["line"], kind] = ops
    assert found == told
