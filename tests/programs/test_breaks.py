"""Fifteen ways to break a graph, cold and warm: each once, on the right line."""

import functools
from pathlib import Path
from typing import Any

import pytest
from programs import Finished, RunProgram

from instrumented_backend.observe.compile.breaks import MAX_BREAKS, BreakLog
from instrumented_backend.observe.messages.reasons import BreakReason, Frame, read_reason
from instrumented_backend.observe.native.keys import region_key
from instrumented_backend.observe.ops.estimate import OpSums
from instrumented_backend.observe.ops.lines import Line
from instrumented_backend.records import GraphRecord

LIBRARY = """\
def noisy(x):
    y = x.mm(x)
    print("in a library")  # break: library
    return y.mm(y)
"""

# Nothing but library calls in the graphs: no kernel has to be compiled.
PROGRAM = """\
import os, sys; sys.path.insert(0, os.getcwd())
import _struct
import numpy, torch
import library

def prints(x):
    y = x.mm(x)
    print("hello")  # break: print
    return y.mm(y)

def item(x):
    y = x.mm(x)
    return y.mm(y) if y.det().item() == 5 else y.t()  # break: item

def branch(x):
    y = x.mm(x)
    if y.det():  # break: if
        return y
    return y.mm(y)

def builtin(x):
    y = x.mm(x)
    exec("z = 3")  # break: builtin
    return y.mm(y)

def extension(x):
    y = x.mm(x)
    n = _struct.calcsize("i")  # break: extension
    return y.mm(y)

def number(x):
    y = x.mm(x)
    numpy.random.uniform()  # break: numpy
    return y.mm(y)

def generate(x):
    torch._dynamo.graph_break()  # break: generator
    yield x

def generator(x):  # skipped: generator
    y = x.mm(x)
    for z in generate(y):
        y = z.mm(z)
    return y

def trying(x):  # skipped: try
    y = x.mm(x)
    try:
        print("try")  # break: try
    except ValueError:
        y = y.mm(y)
    return y.mm(y)

class Plain:
    def __enter__(self): return self
    def __exit__(self, *error): return False

def context(x):  # skipped: with
    y = x.mm(x)
    with Plain():
        print("with")  # break: with
    return y.mm(y)

@torch.compiler.disable
def disabled(x):
    return x.cos().sin()

def calls_disabled(x):
    y = x.mm(x)
    z = disabled(y)  # break: disabled
    return z.mm(z)

def loop(x):  # skipped: loop
    for i in range(3):
        x = x.mm(x)
        print("loop")  # break: loop
    return x

def inner(x):
    y = x.mm(x)
    print("nested")  # break: nested
    return y.mm(y)

def nested(x):
    y = inner(x.mm(x))
    return y.mm(y)

def item_of_list(x):
    print("comprehension")  # break: comprehension
    return x.mm(x)

def comprehension(x):
    y = x.mm(x)
    return [item_of_list(y) for _ in range(2)]

def hook(module, inputs, output):
    print("hook")  # break: hook
    return output.mm(output)

class Leaf(torch.nn.Module):
    def forward(self, x):
        return x.mm(x)

class Hooked(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.leaf = Leaf()
        self.leaf.register_forward_hook(hook)
    def forward(self, x):
        return self.leaf(x).mm(x)

class Noisy(torch.nn.Module):
    def forward(self, x):
        y = x.mm(x)
        print("module")  # break: module
        return y.mm(y)

class Outer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.noisy = Noisy()
    def forward(self, x):
        return self.noisy(x).mm(x)

def calls_library(x):
    y = library.noisy(x.mm(x))
    return y.mm(y)

compiled = [
    torch.compile(function, backend="instrumented")
    for function in (
        prints, item, branch, builtin, extension, number, generator, trying, context,
        calls_disabled, loop, nested, comprehension, Hooked(), Outer(), calls_library,
    )
]
x = torch.ones(4, 4)
for _ in range(2):
    for function in compiled:
        function(x)

def others(x):
    print("no break of this backend's")
    return x.mm(x)
torch.compile(others, backend="eager")(x)
"""
# How many compilations met it: functions that were inlined are recompiled by themselves.
MET = {
    **dict.fromkeys(("print", "item", "if", "builtin", "extension", "numpy"), 1),
    **dict.fromkeys(("generator", "try", "with", "disabled", "loop"), 1),
    **dict.fromkeys(("nested", "hook", "module", "library"), 2),
}


@functools.cache
def _marked(kind: str, program: str) -> dict[str, tuple[str, int]]:
    """``# break: print`` → its file and line, from the sources above."""
    return {
        line.partition(f"# {kind}: ")[2]: (name, number)
        for name, source in ((program, PROGRAM), ("library.py", LIBRARY))
        for number, line in enumerate(source.splitlines(), 1)
        if f"# {kind}: " in line
    }


@pytest.mark.full
def test_fifteen_causes(run_forked: RunProgram, tmp_path: Path, cold_cache: Path) -> None:
    (tmp_path / "library.py").write_text(LIBRARY)
    for number, state in enumerate(("cold", "warm")):
        done: Finished = run_forked(
            PROGRAM,
            env={
                "TORCHINDUCTOR_CACHE_DIR": str(cold_cache),
                "INSTRUMENTED_OPS": "always",
                "INSTRUMENTED_TABLES": "breaks",
            },
            timeout=600,  # three dozen compilations, on a machine that may be busy
        )
        graphs = done.report["caches"]["graphs"]["hit"], len(done.report["graphs"])
        assert (graphs[0] == graphs[1]) == (state == "warm"), graphs
        _check_fifteen_causes(done, f"program{number}.py")


def _check_fifteen_causes(done: Finished, program: str) -> None:
    report = done.report
    breaks = {(Path(b["file"]).name, b["line"]): b for b in report["breaks"]}
    expected = _marked("break", program)
    assert len(expected) == 16  # data-dependent branches twice: by item() and by if
    assert set(breaks) == set(expected.values()) and len(report["breaks"]) == 16
    lines = {program: PROGRAM.splitlines(), "library.py": LIBRARY.splitlines()}
    for name, (file, line) in expected.items():
        found = breaks[file, line]
        code = lines[file][line - 1].partition("#")[0].strip()
        assert found["source"] and found["source"].startswith(code), name
        if name in MET:
            assert found["count"] == MET[name], name
        skipped = [(f["function"], f["line"]) for f in found["skipped"]]
        where = _marked("skipped", program).get(name)
        assert (where is not None) == (found["kind"] == "skipped") or name == "comprehension", name
        if where is not None:
            assert [line for _, line in skipped] == [where[1]], name
        assert found["reason"] and "0x" not in found["reason"]
        assert found["headline"] and found["reason"].startswith(found["headline"])
    assert report["summary"]["graph_breaks"] == 16

    by_name = {name: breaks[place] for name, place in expected.items()}
    # Two ops in the function that was not to be compiled, two calls of it.
    assert by_name["disabled"]["eager_ops"] == 4
    # The loop's three products, and those of the two functions skipped for a try and a with.
    assert by_name["loop"]["eager_ops"] == 6
    assert by_name["try"]["eager_ops"] == by_name["with"]["eager_ops"] == 4
    assert by_name["print"]["eager_ops"] == 0
    costs = [b["eager_time_us"] for b in report["breaks"]]
    assert costs == sorted(costs, reverse=True)
    graphs = report["graphs"]
    (before,), (after,) = (by_name["print"][f"graphs_{side}"] for side in ("before", "after"))
    assert graphs[before]["function"] == "prints"
    assert graphs[after]["function"].startswith("torch_dynamo_resume_in_prints_at_")

    text = done.stderr
    assert text.count("\n  met ") == 16
    assert f'{program}:{expected["print"][1]} in prints: print("hello")' in text
    assert f"next: start with {program}:" in text
    table = text[text.index("What broke") :]
    assert all(len(line) <= 80 for line in table.splitlines())


def test_what_raises_is_not_said_to_run_eagerly(run_forked: RunProgram) -> None:
    done = run_forked(
        """
        import torch
        from torch._dynamo.exc import FailOnRecompileLimitHit, Unsupported
        torch._dynamo.config.recompile_limit = 2

        def breaks(x):
            with torch._dynamo.error_on_graph_break(True):
                y = x.mm(x)
                torch._dynamo.graph_break()
                return y.mm(y)

        def grows(x):
            return x.mm(x)

        torch.compile(grows, backend="instrumented")(torch.eye(2))
        strict = torch.compile(grows, backend="instrumented", fullgraph=True, dynamic=False)
        breaking = torch.compile(breaks, backend="instrumented")
        for function, sizes in ((breaking, [2]), (strict, [3, 4, 5])):
            try:
                for size in sizes:
                    function(torch.eye(size))
            except (FailOnRecompileLimitHit, Unsupported) as error:
                print(type(error).__name__)
        """,
        env={"INSTRUMENTED_TABLES": "breaks,recompiles"},
    )
    assert done.stdout.splitlines() == ["Unsupported", "FailOnRecompileLimitHit"]
    assert done.report["summary"]["skipped_functions"] == 0
    (record,) = done.report["recompiles"]
    assert (record["limit_hits"], record["limit_raised"]) == (1, 1)
    text = " ".join(done.stderr.split())
    assert "raises, with fullgraph=True" in text and "eagerly" not in text.partition("Functions")[2]


# --- Without a compiler ---------------------------------------------------------------------------


def reason(line: int, text: str = "Broken") -> BreakReason:
    frame = Frame("/me/model.py", line, "f", "broken()")
    return BreakReason(read_reason(text), "mend it", frame, stack=[frame])


def test_what_raised_did_not_run_eagerly() -> None:
    """fullgraph=True: the program gets an exception, and nothing runs."""
    log = BreakLog()
    log.gave_up("0/0", "Broken", "f", "/me/model.py", 3, raises=True)
    log.met("1/0", reason(9))
    log.gave_up("1/0", "Broken", "g", "/me/model.py", 8, raises=True)
    second, first = log.records([], None)
    assert (first.kind, first.line, first.skipped) == ("break", 9, [])
    assert (second.kind, second.line, second.skipped) == ("gave up", 3, [])


def test_restarts_of_a_compilation_are_one_meeting() -> None:
    log = BreakLog()
    for compile_id in ("0/0", "0/0", "1/0"):
        log.met(compile_id, reason(3))
    log.compiled("0/0", "f", "/me/model.py", [7])
    log.compiled("1/0", "f", "/me/model.py", [None])
    (record,) = log.records([], None)
    assert (record.count, record.kind, record.graphs_before) == (2, "break", [7])
    assert (record.eager_ops, record.eager_time_us) == (None, None)  # nobody looked
    for _ in range(2):
        log.met(None, reason(3))  # outside any compilation: nothing tells one from another
    assert log.records([], None)[0].count == 4


def test_compile_ids_come_again_after_a_reset() -> None:
    log = BreakLog()
    for end in (log.ended, lambda compile_id: log.compiled(compile_id, "f", "m", [])):
        log.met("0/0", reason(3))
        end("0/0")
    assert log.records([], None)[0].count == 2


def test_a_function_given_up_without_a_break() -> None:
    log = BreakLog()
    message = "Dynamo recompile limit exceeded\n  Explanation: Too often.\n"
    log.gave_up("0/8", message, "f", "/me/model.py", 2)
    (record,) = log.records([], None)
    assert (record.kind, record.file, record.line) == ("gave up", "/me/model.py", 2)
    assert [(f.function, f.line) for f in record.skipped] == [("f", 2)]
    assert record.hint is not None and "recompiles" in record.hint


def test_what_only_dynamos_counter_knows() -> None:
    generator = "Attempt to trace generator\n  Explanation: Generators cannot.\n  Hint: Don't.\n"
    log = BreakLog()
    (record,) = log.unplaced({generator: 2})
    assert (record.kind, record.file, record.count, record.hint) == ("gave up", None, 2, "Don't.")
    # Beside others, too; but not where its event is known. What Dynamo met and got over is none.
    log.gave_up("0/0", "Nothing\n", "f", "/me/model.py", 2)
    assert [found.reason for found in log.unplaced({generator: 2})] == [record.reason]
    log.met("1/0", reason(3, record.reason))
    assert log.unplaced({generator: 2}) == []
    assert BreakLog().unplaced({"Custom metaclass with __getattribute__\n": 1}) == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Skip calling function `<function helper>` since it was wrapped with", "helper"),
        ("Skip inlining function <function M.helper> since it was wrapped with", "M.helper"),
    ],
)
def test_a_break_with_no_graph_before_it(text: str, name: str) -> None:
    """Its own line and the function that Dynamo would not enter, whatever ran before."""
    log = BreakLog()
    log.met("0/0", reason(5, f"Skip `torch.compiler.disable()`d function: {text}"))
    log.compiled("0/0", "f", "/me/model.py", [None])
    seen = {
        (region_key(7, True), Line("/me/model.py", 5, "f", 3)): OpSums(1.0, 1000.0),
        (region_key(7, True), Line("/me/helper.py", 2, name, 1)): OpSums(4.0, 4000.0),
        (region_key(7, True), Line("/me/train.py", 30, "step", 20)): [50.0, 1e6],
    }
    (record,) = log.records([GraphRecord(graph=7)], seen)
    assert (record.eager_ops, record.eager_time_us) == (5, 5.0)


def test_each_eager_op_is_booked_once() -> None:
    log = BreakLog()
    log.met("0/0", reason(5))
    log.compiled("0/0", "f", "/me/model.py", [0])
    log.met("1/0", reason(15))
    log.gave_up("1/0", "Broken\n", "g", "/me/model.py", 12)
    rest = GraphRecord(graph=1, function="torch_dynamo_resume_in_f_at_5", file="/me/model.py")
    rest.calls = 3
    after_first, elsewhere = region_key(0, False), region_key(9, False)
    seen = {
        (after_first, Line("/me/helper.py", 1, "helper", 1)): OpSums(
            4.0, 4000.0
        ),  # between its graphs
        (after_first, Line("/me/model.py", 13, "g", 12)): OpSums(2.0, 2000.0),  # in the skipped one
        (elsewhere, Line("/me/model.py", 13, "g", 12)): OpSums(1.0, 9000.0),
        (elsewhere, Line("/me/train.py", 30, "step", 20)): [50.0, 1e6],  # the optimizer
    }
    skipped, broken = log.records([GraphRecord(graph=0), rest], seen)
    assert (skipped.line, skipped.eager_ops, skipped.eager_time_us) == (15, 3, 11.0)
    assert (broken.line, broken.eager_ops, broken.eager_time_us) == (5, 4, 4.0)
    assert broken.graphs_after == [1]

    # Without a graph after it, what comes next may be anything: only its own line is its doing.
    own = {**seen, (after_first, Line("/me/model.py", 5, "f", 1)): OpSums(1.0, 500.0)}
    _, broken = log.records([GraphRecord(graph=0)], own)
    assert (broken.eager_ops, broken.eager_time_us) == (1, 0.5)


def test_causes_are_bounded_and_counted() -> None:
    log = BreakLog()
    for line in range(MAX_BREAKS + 5):
        log.met(f"{line}/0", reason(line))
        log.compiled(f"{line}/0", "f", "/me/model.py", [line])
    assert len(log.records([], None)) == MAX_BREAKS and log.left_out == 5
    for again in range(1000):
        log.met(f"0/{again + 1}", reason(0))
        log.compiled(f"0/{again + 1}", "f", "/me/model.py", [again])
    first: Any = next(record for record in log.records([], None) if record.line == 0)
    assert first.count == 1001 and len(first.graphs_before) == 100
